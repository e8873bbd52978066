//! Formats the words of the lines about what a recording left: paths, numbers of bytes, plurals.

use std::path::Path;

use heapprof_report::UnitFormatter;

use crate::name;

/// Returns the ending of a word for `n` things.
pub(super) fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Formats a number of bytes, with a unit.
pub(in crate::command) fn bytes(n: i64) -> String {
    UnitFormatter::new("bytes", None).map_or_else(|_| n.to_string(), |m| m.show(i128::from(n)))
}

/// Returns the path relative to the current folder, if it is below that folder.
fn from_here(path: &Path) -> &Path {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path)
}

/// Formats the path as a person reads it.
pub(super) fn shown(path: &Path) -> String {
    from_here(path).display().to_string()
}

/// Formats the path as a shell reads it.
pub(super) fn quoted(path: &Path) -> String {
    name::quoted(from_here(path).as_os_str())
}
