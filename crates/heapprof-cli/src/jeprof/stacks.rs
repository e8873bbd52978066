//! What jeprof does to stacks before it adds them up: allocator frames go, filters apply, frames get the names they are
//! told apart by.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use heapprof_analysis::regex_error;
use heapprof_profile::{
    Function, FunctionIndex, LabelSetIndex, Line, Location, LocationIndex, Profile, StringId,
};
use regex::Regex;

use super::options::Typed;

/// Functions of allocators, which are not shown, nor anything they call.
const ALLOCATOR: [&str; 52] = [
    "calloc",
    "cfree",
    "malloc",
    "newImpl",
    "void* newImpl",
    "free",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "pvalloc",
    "valloc",
    "realloc",
    "mallocx",
    "rallocx",
    "xallocx",
    "dallocx",
    "sdallocx",
    "sdallocx_noflags",
    "tc_calloc",
    "tc_cfree",
    "tc_malloc",
    "tc_free",
    "tc_memalign",
    "tc_posix_memalign",
    "tc_pvalloc",
    "tc_valloc",
    "tc_realloc",
    "tc_new",
    "tc_delete",
    "tc_newarray",
    "tc_deletearray",
    "tc_new_nothrow",
    "tc_newarray_nothrow",
    "do_malloc",
    "::do_malloc",
    "::do_malloc_or_cpp_alloc",
    "DoSampledAllocation",
    "simple_alloc::allocate",
    "__malloc_alloc_template::allocate",
    "__builtin_delete",
    "__builtin_new",
    "__builtin_vec_delete",
    "__builtin_vec_new",
    "operator new",
    "operator new[]",
    "malloc_zone_malloc",
    "malloc_zone_calloc",
    "malloc_zone_valloc",
    "malloc_zone_realloc",
    "malloc_zone_memalign",
    "malloc_zone_free",
    "__start_google_malloc",
];

fn is_allocator(name: &str) -> bool {
    let listed = |name: &str| ALLOCATOR.contains(&name);
    listed(name)
        || name.strip_prefix('_').is_some_and(listed)
        || name.contains("TCMalloc")
        || name.starts_with("tcmalloc::")
}

/// The key of labels that tell threads apart.
const THREAD: &str = "thread";

/// The threads that samples are of, by number where they are numbers.
pub(super) fn threads(profile: &Profile) -> Vec<String> {
    let mut threads = BTreeSet::new();
    for i in 0..profile.samples.len() {
        threads.extend(thread(profile, profile.samples.label_set(i)));
    }
    let mut threads: Vec<String> = threads.into_iter().collect();
    threads.sort_by_key(|t| t.parse::<u64>().unwrap_or(u64::MAX));
    threads
}

fn thread(profile: &Profile, set: LabelSetIndex) -> Option<String> {
    let mut labels = profile.label_sets.get(set).iter();
    let label = labels.find(|l| profile.text(l.key) == THREAD)?;
    Some(match label.str.is_empty() {
        true => label.num.to_string(),
        false => profile.text(label.str).to_string(),
    })
}

/// A profile on its way to jeprof's rows.
pub(super) struct Stacks {
    pub(super) profile: Profile,
}

impl Stacks {
    pub(super) fn new(profile: Profile) -> Self {
        Self { profile }
    }

    /// Leaves the samples of one thread; whether there are any.
    pub(super) fn keep_thread(&mut self, wanted: &str) -> bool {
        let sets = 0..self.profile.label_sets.len() as u32;
        let is: Vec<bool> = sets
            .map(|set| thread(&self.profile, LabelSetIndex(set)).as_deref() == Some(wanted))
            .collect();
        self.profile.samples.rewrite(|stack, _, set, kept| {
            kept.extend_from_slice(stack);
            is[set.index()]
        });
        !self.profile.samples.is_empty()
    }

    /// Takes what is below 0 for 0.
    pub(super) fn drop_negative(&mut self) {
        self.profile.samples.change_values(|_, value| value.max(0));
    }

    /// The signed sum of a sample type.
    pub(super) fn sum(&self, column: usize) -> i128 {
        let samples = &self.profile.samples;
        let values = (0..samples.len()).map(|i| i128::from(samples.values(i)[column]));
        values.sum()
    }

    /// Cuts each stack at the function of an allocator nearest to the root.
    pub(super) fn cut_allocator(&mut self) {
        let of_allocator: Vec<bool> = self
            .profile
            .location
            .iter()
            .map(|location| self.outermost(location).is_some_and(is_allocator))
            .collect();
        self.profile.samples.rewrite(|stack, _, _, kept| {
            let cut = stack.iter().rposition(|l| of_allocator[l.index()]);
            kept.extend_from_slice(&stack[cut.map_or(0, |at| at + 1)..]);
            true
        });
    }

    /// The name of the function that a location is in, whatever was inlined there.
    fn outermost(&self, location: &Location) -> Option<&str> {
        let line = self.profile.lines(location).last()?;
        Some(self.name(line)).filter(|name| !name.is_empty())
    }

    fn name(&self, line: &Line) -> &str {
        let function = &self.profile.function[line.function.index()];
        self.profile.text(function.name)
    }

    /// Where a line is, as addr2line writes it.
    fn place(&self, line: &Line) -> String {
        let function = &self.profile.function[line.function.index()];
        match (self.profile.text(function.filename), line.line) {
            ("", _) => "??:?".to_string(),
            (file, 0) => format!("{file}:?"),
            (file, line) => format!("{file}:{line}"),
        }
    }

    fn address(location: &Location) -> String {
        format!("{:016x}", location.address)
    }

    /// Applies focus, ignore, retain and exclude.
    pub(super) fn filter(&mut self, typed: &Typed) -> Result<()> {
        let regex = |name: &str| -> Result<Option<Regex>> {
            let text = typed.text(name);
            if text.is_empty() {
                return Ok(None);
            }
            let regex = Regex::new(text);
            regex
                .map(Some)
                .map_err(|e| anyhow!("--{name} {text:?}: {}", regex_error(&e)))
        };
        let (focus, ignore) = (regex("focus")?, regex("ignore")?);
        let (retain, exclude) = (regex("retain")?, regex("exclude")?);
        let any = |regex: &Regex| -> Vec<bool> {
            let matches = |location: &Location| {
                let lines = self.profile.lines(location).iter();
                regex.is_match(&Self::address(location))
                    || lines
                        .into_iter()
                        .any(|l| regex.is_match(self.name(l)) || regex.is_match(&self.place(l)))
            };
            self.profile.location.iter().map(matches).collect()
        };
        let own = |regex: &Regex| -> Vec<bool> {
            let matches = |location: &Location| match self.outermost(location) {
                Some(name) => regex.is_match(name),
                None => regex.is_match(&Self::address(location)),
            };
            self.profile.location.iter().map(matches).collect()
        };
        let (retain, exclude) = (retain.as_ref().map(own), exclude.as_ref().map(own));
        let (focus, ignore) = (focus.as_ref().map(any), ignore.as_ref().map(any));
        self.profile.samples.rewrite(|stack, _, _, kept| {
            let begin = kept.len();
            kept.extend(stack.iter().filter(|l| {
                retain.as_ref().is_none_or(|m| m[l.index()])
                    && !exclude.as_ref().is_some_and(|m| m[l.index()])
            }));
            let stack = &kept[begin..];
            let has = |matches: &Vec<bool>| stack.iter().any(|l| matches[l.index()]);
            (retain.is_none() && exclude.is_none() || !stack.is_empty())
                && focus.as_ref().is_none_or(has)
                && !ignore.as_ref().is_some_and(has)
        });
        Ok(())
    }

    /// The profile with a function for each row: what has the same name is the same.
    pub(super) fn keyed(mut self, typed: &Typed) -> Profile {
        let mut keys: Vec<Vec<String>> = Vec::new();
        for location in &self.profile.location {
            let address = Self::address(location);
            // Addresses of the kernel's half come from damaged stacks.
            if location.address > i64::MAX as u64 {
                keys.push(Vec::new());
                continue;
            }
            let lines = self.profile.lines(location);
            if lines.is_empty() {
                keys.push(vec![match typed.on("addresses") {
                    true => format!("{address} {address} "),
                    false => address,
                }]);
                continue;
            }
            let of_line = |(i, line): (usize, &Line)| {
                let (name, place) = (self.name(line), self.place(line));
                let inline = if i + 1 < lines.len() { " (inline)" } else { "" };
                let named = match name {
                    "" => "??".to_string(),
                    name => format!("{name}{inline}"),
                };
                if typed.on("addresses") {
                    format!("{address} {named} {place}")
                } else if typed.on("lines") {
                    format!("{named} {place}")
                } else if typed.on("files") {
                    match place.rsplit_once(':') {
                        Some((file, _)) if file != "??" => file.to_string(),
                        _ => address.clone(),
                    }
                } else if name.is_empty() {
                    address.clone()
                } else {
                    named
                }
            };
            keys.push(lines.iter().enumerate().map(of_line).collect());
        }
        let profile = &mut self.profile;
        profile.function.clear();
        profile.line.clear();
        let mut known = std::collections::HashMap::new();
        for (location, keys) in profile.location.iter_mut().zip(keys) {
            location.address = 0;
            location.mapping = None;
            let start = profile.line.len() as u32;
            for key in keys {
                let name = profile.strings.intern(&key);
                let table = &mut profile.function;
                let function = *known.entry(name).or_insert_with(|| {
                    table.push(Function {
                        id: table.len() as u64 + 1,
                        name,
                        system_name: name,
                        filename: StringId::EMPTY,
                        start_line: 0,
                    });
                    FunctionIndex(table.len() as u32 - 1)
                });
                profile.line.push(Line {
                    function,
                    line: 0,
                    column: 0,
                });
            }
            location.line = start..profile.line.len() as u32;
        }
        // A location without a row is none.
        let empty: Vec<bool> = profile.location.iter().map(|l| l.line.is_empty()).collect();
        if empty.contains(&true) {
            profile.samples.rewrite(|stack, _, _, kept| {
                kept.extend(stack.iter().filter(|&&LocationIndex(l)| !empty[l as usize]));
                true
            });
        }
        self.profile
    }
}
