//! The file that a viewer gets.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// A temporary file for a viewer, which only the user may read: its path, and the open file.
pub(super) type ShownFile = Arc<(PathBuf, File)>;
