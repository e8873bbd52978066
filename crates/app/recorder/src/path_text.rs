//! Formats paths as a person reads them who is in the current folder.

use std::path::Path;

/// Returns the path relative to the current folder, if it is below that folder.
pub fn path_from_here(path: &Path) -> &Path {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path)
}

/// Formats the path as a person reads it.
pub fn shown_path(path: &Path) -> String {
    path_from_here(path).display().to_string()
}
