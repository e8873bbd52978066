//! Checks that profiles agree with the programs' own counts of allocations, line by line.
//!
//! A program writes its counts to the file `expect` beside the profile, and its children write
//! theirs to `expect.PID`. programs/README.md explains the words in these files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use heapprof_profile::{Profile, decode};

/// The sums of a profile, for every function with a name, and for all samples.
pub struct Sums {
    types: Vec<String>,
    functions: BTreeMap<String, Vec<i64>>,
    total: Vec<i64>,
}

impl Sums {
    pub fn from_profile(profile: &Profile) -> Self {
        let types = profile.sample_type.iter();
        let mut sums = Self {
            types: types.map(|t| profile.text(t.r#type).to_string()).collect(),
            functions: BTreeMap::new(),
            total: vec![0; profile.sample_type.len()],
        };
        let add = |to: &mut Vec<i64>, values: &[i64]| {
            to.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += value);
        };
        for sample in 0..profile.samples.len() {
            let values = profile.samples.values(sample);
            add(&mut sums.total, values);
            let mut names = BTreeSet::new();
            for location in profile.samples.stack(sample) {
                for line in profile.lines(&profile.location[location.index()]) {
                    names.insert(profile.function[line.function.index()].name);
                }
            }
            for name in names {
                let name = profile.text(name).to_string();
                let sum = sums.functions.entry(name);
                add(sum.or_insert_with(|| vec![0; values.len()]), values);
            }
        }
        sums
    }

    pub fn value(&self, function: &str, kind: &str) -> Result<i64, String> {
        let has = || format!("no sample type {}; there are {:?}", kind, self.types);
        let at = self.types.iter().position(|t| t == kind).ok_or_else(has)?;
        Ok(self.functions.get(function).map_or(0, |values| values[at]))
    }

    pub fn total(&self, kind: &str) -> i64 {
        let at = self.types.iter().position(|t| t == kind);
        at.map_or(0, |at| self.total[at])
    }
}

fn load(path: &Path) -> Result<Sums, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let profile = decode(file).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Sums::from_profile(&profile))
}

/// Checks the profiles of a run against the expectations that its programs wrote. If `needed` is
/// true, each process must have a profile.
pub fn check(folder: &Path, needed: bool, mode: &str) -> Result<(), String> {
    let mut children: Vec<(String, String)> = Vec::new();
    let mut profiles: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(pid) = name.strip_prefix("expect.") {
            children.push((pid.to_string(), std::fs::read_to_string(&path).unwrap()));
        } else if name.ends_with(".pb.gz") {
            profiles.push(path);
        } else if name.ends_with(".tmp") {
            return Err(format!("{name} is left behind"));
        }
    }
    // Under `record`, the children's profiles are in a separate folder.
    let of_children = std::fs::read_dir(folder.join("out.children"));
    for entry in of_children.into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.extension().is_some_and(|end| end == "gz") {
            true => profiles.push(path),
            false => return Err(format!("{} is left behind", path.display())),
        }
    }
    let out = folder.join("out.pb.gz");
    let lines = std::fs::read_to_string(folder.join("expect")).unwrap_or_default();
    if out.is_file() {
        let sums = load(&out)?;
        lines
            .lines()
            .try_for_each(|line| holds(&sums, line, mode))?;
    } else if needed {
        return Err("no profile".to_string());
    }
    for (pid, lines) in &children {
        let is_its = |path: &&PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.split('.').any(|part| part == pid)
        };
        let its: Vec<Sums> = profiles
            .iter()
            .filter(is_its)
            .map(|p| load(p))
            .collect::<Result<_, _>>()?;
        if its.is_empty() && needed {
            return Err(format!("no profile of child {pid}"));
        }
        // A process that executed several programs has a profile for each of them.
        for line in lines.lines() {
            let tried: Vec<String> = its
                .iter()
                .filter_map(|s| holds(s, line, mode).err())
                .collect();
            if !its.is_empty() && tried.len() == its.len() {
                return Err(format!("child {pid}: {}", tried.join("; or ")));
            }
        }
    }
    Ok(())
}

/// Checks that a profile agrees with a line of expectations.
fn holds(sums: &Sums, line: &str, mode: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| {
        words[at]
            .parse::<i64>()
            .unwrap_or_else(|_| panic!("{line:?}"))
    };
    let equal = |name: &str, kind: &str, expected: i64| match sums.value(name, kind)? {
        found if found == expected => Ok(()),
        found => Err(format!("{name}: {kind} is {found}, not {expected}")),
    };
    match (words[0], mode) {
        ("function", "exact") => {
            for at in [2, 4, 6, 8] {
                equal(words[1], words[at], number(at + 1))?;
            }
            Ok(())
        }
        ("peak", "exact") => {
            equal(words[1], "peak_objects", number(2))?;
            equal(words[1], "peak_space", number(3))
        }
        ("peak_one_of", "exact") => {
            let one = |has: &str, has_not: &str| {
                equal(has, "peak_objects", number(3))?;
                equal(has, "peak_space", number(4))?;
                equal(has_not, "peak_objects", 0)?;
                equal(has_not, "peak_space", 0)
            };
            one(words[1], words[2]).or_else(|_| one(words[2], words[1]))
        }
        ("peak_space_at_least", "exact") => match sums.total("peak_space") {
            found if found >= number(1) => Ok(()),
            found => Err(format!("the peak is {found}, less than {}", number(1))),
        },
        ("temporary", "exact") => equal(words[1], "temporary_objects", number(2)),
        ("sampled", "sampled") => {
            for (kind, at) in [("alloc_objects", 2), ("alloc_space", 4)] {
                let found = sums.value(words[1], kind)?;
                if (found - number(at)).abs() > number(at + 1) {
                    let off = number(at + 1);
                    return Err(format!(
                        "{}: {kind} is {found}, not {} ± {off}",
                        words[1],
                        number(at)
                    ));
                }
            }
            Ok(())
        }
        (
            "function" | "peak" | "peak_one_of" | "peak_space_at_least" | "temporary" | "sampled",
            _,
        ) => Ok(()),
        _ => panic!("what is {line:?}?"),
    }
}
