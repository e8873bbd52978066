//! Formats paths, numbers of bytes and plurals for the report about a recording.

use std::path::Path;

use heapprof_recorder::path_from_here;
pub(super) use heapprof_recorder::shown_path as shown;
use heapprof_report::UnitFormatter;

use crate::name;

/// Returns the plural ending of a word for `n` things.
pub(super) fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Formats a number of bytes, with a unit.
pub(in crate::command) fn bytes(n: i64) -> String {
    UnitFormatter::new("bytes", None).map_or_else(|_| n.to_string(), |m| m.show(i128::from(n)))
}

/// Formats a path, quoted for a shell.
pub(super) fn quoted(path: &Path) -> String {
    name::quoted(path_from_here(path).as_os_str())
}

/// Describes how many children are left out, and the option that keeps them.
pub(super) fn describe_left_out(count: usize) -> String {
    match count {
        1 => "a child that used less than 64KiB of its own was left out: --keep-small keeps it"
            .to_string(),
        count => format!(
            "{count} children that used less than 64KiB of their own were left out: --keep-small \
             keeps them"
        ),
    }
}
