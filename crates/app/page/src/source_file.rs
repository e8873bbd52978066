//! Finds the source files that a profile names, and reads their lines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where to find source files.
#[derive(Clone, Debug, Default)]
pub struct SourceFolders {
    /// Folders to search for source files; if there are none, the current folder and the folders
    /// above it.
    pub folders: Vec<PathBuf>,
    /// Beginnings that are cut off from the file names in a profile.
    pub trims: Vec<String>,
    /// Advice for a file that is not found.
    pub advice: &'static str,
}

/// The source files that were searched for so far. Each file is read only once.
pub struct SourceFiles<'a> {
    places: &'a SourceFolders,
    /// Why no file is read; `None` if files are read.
    closed: Option<&'static str>,
    known: RefCell<HashMap<String, SourceLines>>,
}

/// Largest source file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

impl<'a> SourceFiles<'a> {
    /// Makes a reader of source files in the folders `places`.
    pub fn new(places: &'a SourceFolders) -> Self {
        Self {
            places,
            closed: None,
            known: RefCell::default(),
        }
    }

    /// Makes a reader that refuses to read any file. `why` is the reason that it gives.
    pub fn closed(places: &'a SourceFolders, why: &'static str) -> Self {
        Self {
            closed: Some(why),
            ..Self::new(places)
        }
    }

    /// Returns the lines of a file that a profile names.
    pub fn lines(&self, file: &str) -> SourceLines {
        if let Some(why) = self.closed {
            return Err(why.to_string());
        }
        let mut known = self.known.borrow_mut();
        let lines = known.entry(file.to_string());
        let read = || source_text(file, self.places);
        lines.or_insert_with(read).clone()
    }

    /// Returns one line of a file that a profile names, counted from 1.
    pub fn line(&self, file: &str, line: i64) -> Option<String> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        self.lines(file).ok()?.get(index).cloned()
    }
}

/// A source file's lines, or why there are none.
pub type SourceLines = Result<Rc<[String]>, String>;

/// Returns the lines of a source file that a profile names.
///
/// * If `file` begins with one of the beginnings to cut off, only the rest is searched for, in each
///   of the folders.
/// * Any other `file` is tried as it is, and then in each of the folders. If that fails, its path
///   is tried without its first part, then without its first two parts, and so on, but never as the
///   bare file name. In this way, a file that was built elsewhere is found in a checkout.
///
/// If there are no folders, the current folder and all folders above it are searched.
fn source_text(file: &str, places: &SourceFolders) -> SourceLines {
    let SourceFolders {
        folders,
        trims,
        advice,
    } = places;
    if file.is_empty() {
        return Err("the profile does not name a file".to_string());
    }
    let file = file.strip_prefix("/proc/self/cwd/").unwrap_or(file);
    let trimmed = trims.iter().find_map(|t| {
        let rest = file.strip_prefix(t.trim_end_matches('/'))?;
        rest.strip_prefix('/')
    });
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let folders: Vec<&Path> = match &folders[..] {
        [] => here.ancestors().collect(),
        given => given.iter().map(PathBuf::as_path).collect(),
    };
    let mut candidates = Vec::new();
    if trimmed.is_none() {
        candidates.push(PathBuf::from(file));
    }
    let mut relative = trimmed.unwrap_or(file).trim_start_matches('/');
    loop {
        candidates.extend(folders.iter().map(|folder| folder.join(relative)));
        match relative.split_once('/') {
            // A bare file name could be any file; at least one folder must agree.
            Some((_, rest)) if trimmed.is_none() && rest.contains('/') => relative = rest,
            _ => break,
        }
    }
    let found = candidates.iter().find(|path| path.is_file());
    let Some(found) = found else {
        return Err(format!("{file} is not found{advice}"));
    };
    let failed = |error: std::io::Error| format!("{}: {error}", found.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(found).map_err(failed)?;
    // Kernel files report that they are empty. Reading one may take something away, or wait.
    let len = file.metadata().map_err(failed)?.len();
    file.take(len.min(MAX_FILE_BYTES + 1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "{}: is too large for a source file (limit 64MiB)",
            found.display()
        ));
    }
    Ok(String::from_utf8_lossy(&bytes)
        .lines()
        .map(str::to_string)
        .collect())
}
