//! Tells whether a program is a perl, without looking into its memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use heapprof_heap::CoreMemory;
use heapprof_process::maps;
use heapprof_recorder::outside::open_core;

use crate::words::base_name;

/// Whether a process is a perl, or has one in it.
#[must_use]
pub fn process(pid: u32) -> bool {
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps::parse(&text)
        .iter()
        .any(|map| is_mapped_perl(&map.path))
}

/// Whether a core file is of a perl, or of a program that has one in it.
#[must_use]
pub fn core(path: &Path) -> bool {
    let core = open_core(path)
        .ok()
        .map(|(file, _)| CoreMemory::open(file, None));
    let image = core.and_then(|core| core.ok()?.image().ok());
    image.is_some_and(|image| image.files.iter().any(|map| is_mapped_perl(&map.path)))
}

/// Whether a file is a perl, or its library, by its name.
#[must_use]
pub fn is_perl(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let name = base_name(&path);
    let version = name.strip_prefix("perl").unwrap_or("x");
    let is_version = |c: char| c.is_ascii_digit() || ".-".contains(c);
    version.chars().all(is_version) || name.starts_with("libperl.so")
}

/// Whether a mapped file is a perl, or its library.
fn is_mapped_perl(path: &[u8]) -> bool {
    is_perl(Path::new(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perls_are_known_by_their_files() {
        for (path, expected) in [
            ("/usr/bin/perl", true),
            ("/usr/bin/perl5.36.0", true),
            ("/opt/perl-5.8/bin/perl5.8.9", true),
            ("/usr/lib/libperl.so.5.36", true),
            ("/usr/bin/perldoc-server", false),
            ("/usr/bin/python3", false),
            ("", false),
        ] {
            assert_eq!(is_perl(Path::new(path)), expected, "{path}");
        }
        assert!(!process(std::process::id()));
    }
}
