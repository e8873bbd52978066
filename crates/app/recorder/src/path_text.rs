//! Formats paths for messages, relative to the current folder if they are below it.

use std::path::Path;

/// Returns the path relative to the current folder, if it is below that folder.
pub fn path_from_here(path: &Path) -> &Path {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path)
}

/// Formats a path for a message.
pub fn shown_path(path: &Path) -> String {
    path_from_here(path).display().to_string()
}
