//! The profiles that recordings left in a folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_text::file_name as name;

use crate::names::CHILDREN_SUFFIX;

/// The ending of a profile's file name.
pub const PROFILE_SUFFIX: &str = ".pb.gz";

/// Returns the profiles that a name stands for. A folder stands for the profiles in it, and in the
/// children's folders inside it. A profile stands for itself and for the profiles of its children,
/// which are in a folder beside it.
///
/// # Errors
/// A folder can't be read, or has no profiles.
pub fn profiles_of(name: &str) -> Result<Vec<String>> {
    let path = name::path(name);
    let mut found = Vec::new();
    if path.is_dir() {
        add_folder(&path, true, &mut found)?;
        must_have_some(name, &found)?;
    } else {
        found.push(name.to_string());
        let children = name.strip_suffix(PROFILE_SUFFIX);
        let children = children.map(|stem| format!("{stem}{}", CHILDREN_SUFFIX));
        if let Some(children) = children.filter(|children| Path::new(children).is_dir()) {
            add_folder(Path::new(&children), false, &mut found)?;
        }
    }
    Ok(found)
}

/// Fails if nothing was found in a folder.
///
/// # Errors
/// Nothing was found.
pub fn must_have_some<T>(folder: &str, found: &[T]) -> Result<()> {
    if found.is_empty() {
        bail!("{folder}: there is no profile ({PROFILE_SUFFIX}) in this folder");
    }
    Ok(())
}

/// Returns the paths in a folder, sorted by name.
///
/// # Errors
/// The folder can't be read.
pub fn list_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let named = || format!("{}: cannot be read", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(named)? {
        paths.push(entry.with_context(named)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Adds the profiles in a folder, sorted by name. If `with_children` is true, also adds the
/// profiles in the children's folders inside it.
fn add_folder(folder: &Path, with_children: bool, to: &mut Vec<String>) -> Result<()> {
    for path in list_folder(folder)? {
        let text = path.to_string_lossy();
        if text.ends_with(PROFILE_SUFFIX) && path.is_file() {
            to.push(text.into_owned());
        } else if with_children && text.ends_with(CHILDREN_SUFFIX) && path.is_dir() {
            add_folder(&path, false, to)?;
        }
    }
    Ok(())
}
