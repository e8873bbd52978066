//! Finds the allocators with which a program can be run, and selects them by name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::AllocatorError;

/// An allocator and its settings, with which a program can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorSetup {
    /// The allocator's name.
    pub name: String,
    /// The allocator's library, which is preloaded; `None` for glibc's malloc.
    pub library: Option<PathBuf>,
    /// Settings of glibc's malloc, in the form of the variable GLIBC_TUNABLES.
    tunables: String,
}

/// The known allocators, with the file names of their libraries. The first library that exists is
/// used.
const KNOWN_ALLOCATORS: &[(&str, &[&str])] = &[
    ("jemalloc", &["libjemalloc.so.2", "libjemalloc.so"]),
    (
        "tcmalloc",
        &[
            "libtcmalloc_minimal.so.4",
            "libtcmalloc_minimal.so",
            "libtcmalloc.so.4",
            "libtcmalloc.so",
        ],
    ),
    (
        "mimalloc",
        &[
            "libmimalloc.so.3",
            "libmimalloc.so.2",
            "libmimalloc.so.2.0",
            "libmimalloc.so",
        ],
    ),
    ("hoard", &["libhoard.so"]),
    ("snmalloc", &["libsnmallocshim.so"]),
    ("rpmalloc", &["librpmallocwrap.so", "librpmalloc.so"]),
    ("scudo", &["libscudo.so"]),
    (
        "tbbmalloc",
        &["libtbbmalloc_proxy.so.2", "libtbbmalloc_proxy.so"],
    ),
];

/// The tunables of glibc's malloc (its manual, "Memory Allocation Tunables").
const GLIBC_TUNABLE_NAMES: &[&str] = &[
    "arena_max",
    "arena_test",
    "check",
    "hugetlb",
    "mmap_max",
    "mmap_threshold",
    "mxfast",
    "perturb",
    "tcache_count",
    "tcache_max",
    "tcache_unsorted_limit",
    "top_pad",
    "trim_threshold",
];

const GLIBC_NAME: &str = "glibc";
const TUNABLES_VARIABLE: &str = "GLIBC_TUNABLES";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Returns the folders that the loader searches for libraries.
fn folders() -> Vec<PathBuf> {
    let of_user = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&of_user)
        .filter(|path| path.is_absolute())
        .collect();
    let mut known: BTreeSet<PathBuf> = folders.iter().cloned().collect();
    let configured = read_loader_config(Path::new("/etc/ld.so.conf"), 0);
    let usual = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let machine = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"].map(PathBuf::from);
    for folder in configured.into_iter().chain(machine).chain(usual) {
        if known.insert(folder.clone()) {
            folders.push(folder);
        }
    }
    folders
}

/// Returns the folders in a configuration file of the loader, and in the files that it includes.
fn read_loader_config(file: &Path, depth: u8) -> Vec<PathBuf> {
    const MAX_INCLUDE_DEPTH: u8 = 4;
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut found = Vec::new();
    for line in text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
    {
        if let Some(included) = line.strip_prefix("include ") {
            // A pattern such as /etc/ld.so.conf.d/*.conf
            let included = Path::new(included.trim());
            let (Some(folder), true) = (included.parent(), depth < MAX_INCLUDE_DEPTH) else {
                continue;
            };
            let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut files: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
            files.sort();
            for file in files
                .iter()
                .filter(|file| file.extension() == included.extension())
            {
                found.extend(read_loader_config(file, depth + 1));
            }
        } else if line.starts_with('/') {
            found.push(PathBuf::from(line));
        }
    }
    found
}

fn find(names: &[&str], folders: &[PathBuf]) -> Option<PathBuf> {
    let mut all = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.find(|path| path.is_file())
}

/// The installed allocators, and the names of missing ones with the files that were searched for.
pub type AllocatorSelection = (Vec<AllocatorSetup>, Vec<(String, String)>);

/// Whether a file has the name of a known allocator's library.
pub(crate) fn is_known(file: &str) -> bool {
    let libraries = KNOWN_ALLOCATORS
        .iter()
        .filter_map(|(_, names)| names.last());
    let mut stems = libraries.filter_map(|library| library.strip_suffix(".so"));
    stems.any(|stem| {
        file.strip_prefix(stem)
            .is_some_and(|rest| rest.starts_with(".so"))
    })
}

/// Finds the allocators in the user's list, or all known ones if the list is empty. Returns the
/// installed allocators in the order of the list, and the missing allocators with the files that
/// were searched for.
pub fn select_allocators(asked: &[String]) -> Result<AllocatorSelection, AllocatorError> {
    let folders = folders();
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    if asked.is_empty() {
        found.push(AllocatorSetup::plain(GLIBC_NAME));
        for (name, names) in KNOWN_ALLOCATORS {
            let library = find(names, &folders);
            found.extend(library.map(|library| AllocatorSetup::with_preload(name, library)));
        }
        if found.len() == 1 {
            return Err(AllocatorError::NoneInstalled);
        }
        return Ok((found, missing));
    }
    let mut known = BTreeSet::new();
    for text in asked.iter().map(|text| text.trim()) {
        if !known.insert(text) {
            return Err(AllocatorError::Twice(text.to_string()));
        }
        if text == GLIBC_NAME {
            found.push(AllocatorSetup::plain(GLIBC_NAME));
        } else if let Some(tunables) = text.strip_prefix("glibc:") {
            found.push(AllocatorSetup::with_tunables(text, tunables)?);
        } else if text.contains('/') {
            let path = Path::new(text);
            match std::fs::canonicalize(path) {
                Ok(library) if library.is_file() => {
                    found.push(AllocatorSetup::with_preload(text, library));
                }
                _ => missing.push((text.to_string(), "there is no such file".to_string())),
            }
        } else {
            let own = KNOWN_ALLOCATORS.iter().find(|(name, _)| *name == text);
            let Some((name, names)) = own else {
                let names: Vec<&str> = KNOWN_ALLOCATORS.iter().map(|(name, _)| *name).collect();
                return Err(AllocatorError::Unknown {
                    name: text.to_string(),
                    known: names.join(", "),
                });
            };
            match find(names, &folders) {
                Some(library) => found.push(AllocatorSetup::with_preload(name, library)),
                None => {
                    missing.push((text.to_string(), format!("looked for {}", names.join(", "))))
                }
            }
        }
    }
    Ok((found, missing))
}

impl AllocatorSetup {
    fn plain(name: &str) -> Self {
        Self {
            name: name.to_string(),
            library: None,
            tunables: String::new(),
        }
    }

    fn with_preload(name: &str, library: PathBuf) -> Self {
        Self {
            library: Some(library),
            ..Self::plain(name)
        }
    }

    /// Returns glibc's malloc with tunables, such as `arena_max=1+mmap_threshold=65536`.
    fn with_tunables(name: &str, text: &str) -> Result<Self, AllocatorError> {
        let mut tunables = Vec::new();
        for pair in text.split('+') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !GLIBC_TUNABLE_NAMES.contains(&key) {
                return Err(AllocatorError::UnknownTunable {
                    allocator: name.to_string(),
                    tunable: key.to_string(),
                    known: GLIBC_TUNABLE_NAMES.join(", "),
                });
            }
            let digits = value.strip_prefix("0x").unwrap_or(value);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(AllocatorError::NoNumber {
                    allocator: name.to_string(),
                    tunable: key.to_string(),
                });
            }
            tunables.push(format!("glibc.malloc.{key}={value}"));
        }
        Ok(Self {
            tunables: tunables.join(":"),
            ..Self::plain(name)
        })
    }

    /// Describes the allocator's settings: its library, or its tunables.
    pub fn describe_settings(&self) -> String {
        match &self.library {
            Some(library) => library.display().to_string(),
            None => self.tunables.clone(),
        }
    }

    /// Makes a command run with this allocator. Libraries that the user preloads come after the
    /// allocator's library.
    pub fn apply_to(&self, command: &mut Command) {
        if let Some(library) = &self.library {
            command.env(
                PRELOAD_VARIABLE,
                join_with_variable(library.as_os_str(), PRELOAD_VARIABLE),
            );
        }
        if !self.tunables.is_empty() {
            let tunables = join_with_variable(self.tunables.as_ref(), TUNABLES_VARIABLE);
            command.env(TUNABLES_VARIABLE, tunables);
        }
    }
}

/// Joins `first` with the present value of an environment variable.
fn join_with_variable(first: &std::ffi::OsStr, variable: &str) -> OsString {
    let mut all = first.to_os_string();
    if let Some(others) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<AllocatorSelection, AllocatorError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
        select_allocators(&words)
    }

    #[test]
    fn what_is_asked_for_is_found_or_named() {
        let (found, missing) =
            asked(&["glibc", "glibc:arena_max=1+hugetlb=2", "./nowhere.so"]).unwrap();
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["glibc", "glibc:arena_max=1+hugetlb=2"]);
        let tunables = "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=2";
        assert_eq!(found[1].describe_settings(), tunables);
        assert_eq!(missing[0].0, "./nowhere.so");
        for (wrong, why) in [
            (["glibc", "mymalloc"], "not a known allocator"),
            (["glibc", "glibc"], "twice"),
            (["glibc", "glibc:arenas=1"], "not a tunable"),
            (["glibc", "glibc:arena_max="], "number"),
            (["glibc", "glibc:arena_max=x:y"], "number"),
        ] {
            let error = asked(&wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn libraries_are_known_by_their_names() {
        for name in [
            "libjemalloc.so.2",
            "libtcmalloc.so.4.5.10",
            "libmimalloc.so",
        ] {
            assert!(is_known(name), "{name}");
        }
        for name in ["libjemalloc_pic.a", "libc.so.6", "", "jemalloc"] {
            assert!(!is_known(name), "{name}");
        }
    }

    #[test]
    fn folders_are_the_loader_s() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path();
        let write = |name: &str, text: String| std::fs::write(path.join(name), text).unwrap();
        write(
            "main",
            format!("# a\n/one\ninclude {}/*.conf\n/two # b\n", path.display()),
        );
        write("a.conf", "/three\n".to_string());
        write("b.other", "/four\n".to_string());
        write("c.conf", format!("include {}/*.conf\n", path.display()));
        let found = read_loader_config(&path.join("main"), 0);
        assert_eq!(found[..2], [PathBuf::from("/one"), PathBuf::from("/three")]);
        assert_eq!(found.last(), Some(&PathBuf::from("/two")));
        assert!(!found.contains(&PathBuf::from("/four")));
        write("libx.so.2", String::new());
        let folders = [PathBuf::from("/nowhere"), path.to_path_buf()];
        assert_eq!(
            find(&["libx.so.3", "libx.so.2"], &folders),
            Some(path.join("libx.so.2"))
        );
    }
}
