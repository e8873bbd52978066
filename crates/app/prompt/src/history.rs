//! The lines that were typed before, in the folder for a user's state.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::Result;
use heapprof_files::{FileAccess, FilePlace, PathTrust, make_folder};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};

/// Maximum number of lines that are kept.
pub(crate) const MAX_LINES: usize = 1000;
/// Maximum size of the file in bytes. The rest of a larger file is ignored.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// The file with the lines that were typed in a shell.
pub(crate) struct HistoryFile {
    folder: PathBuf,
    name: String,
}

impl HistoryFile {
    /// Returns the file for a shell, or `None` if the user has no folder for it.
    pub(crate) fn of_shell(shell: &str) -> Option<Self> {
        let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let state = set("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.filter(|folder| folder.is_absolute());
        let home = || Some(PathBuf::from(set("HOME")?).join(".local/state"));
        Some(Self::in_folder(state.or_else(home)?, shell))
    }

    fn in_folder(state: PathBuf, shell: &str) -> Self {
        Self {
            folder: state.join("heapprof"),
            name: format!("{shell}-history"),
        }
    }

    /// Returns the lines, the oldest one first; none if there is no file that can be read.
    pub(crate) fn read(&self) -> Vec<String> {
        let place = FilePlace::resolve(&self.folder.join(&self.name), PathTrust::OwnLinks);
        let Ok(opened) = place.and_then(|place| place.open()) else {
            return Vec::new();
        };
        let mut text = Vec::new();
        if opened
            .file
            .take(MAX_FILE_SIZE)
            .read_to_end(&mut text)
            .is_err()
        {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<String> = text.lines().map(str::to_string).collect();
        let first = lines.len().saturating_sub(MAX_LINES);
        lines.into_iter().skip(first).collect()
    }

    /// Adds a line to the file. Another shell may have added lines meanwhile; they are kept. Only
    /// the user may read the file.
    pub(crate) fn add(&self, line: &str) -> Result<()> {
        let folder = make_folder(&self.folder, PathTrust::OwnLinks)?;
        // The file is replaced by each shell, so the folder is what they can lock.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let locked = openat(&folder, ".", flags, Mode::empty())?;
        flock(&locked, FlockOperation::LockExclusive)?;
        let mut lines = self.read();
        if lines.last().is_some_and(|last| last == line) {
            return Ok(());
        }
        lines.push(line.to_string());
        let first = lines.len().saturating_sub(MAX_LINES);
        let place = FilePlace::in_folder(folder, self.name.as_str());
        let mut draft = place.draft(FileAccess::Exactly(0o600))?;
        let mut text = String::new();
        for line in lines.iter().skip(first) {
            text.push_str(line);
            text.push('\n');
        }
        draft.file().write_all(text.as_bytes())?;
        Ok(draft.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn lines_are_kept_for_the_user_alone() {
        let state = tempfile::tempdir().unwrap();
        let history = HistoryFile::in_folder(state.path().to_path_buf(), "pprof");
        assert!(history.read().is_empty());
        for line in ["top", "list main", "list main"] {
            history.add(line).unwrap();
        }
        assert_eq!(history.read(), ["top", "list main"]);
        let path = state.path().join("heapprof/pprof-history");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn only_the_newest_lines_are_kept() {
        let state = tempfile::tempdir().unwrap();
        let history = HistoryFile::in_folder(state.path().to_path_buf(), "pprof");
        let mut typed: Vec<String> = (0..MAX_LINES + 5).map(|n| n.to_string()).collect();
        history.add("first").unwrap();
        let path = state.path().join("heapprof/pprof-history");
        std::fs::write(&path, typed.join("\n")).unwrap();
        assert_eq!(history.read(), typed[5..]);
        history.add("last").unwrap();
        typed.push("last".to_string());
        assert_eq!(history.read(), typed[6..]);
    }

    /// Shells that are open at the same time erase no lines of each other.
    #[test]
    fn lines_of_several_shells_are_kept() {
        const LINES: usize = 20;
        let state = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for shell in 0..4 {
                let state = state.path().to_path_buf();
                scope.spawn(move || {
                    let history = HistoryFile::in_folder(state, "pprof");
                    for line in 0..LINES {
                        history.add(&format!("{shell} {line}")).unwrap();
                    }
                });
            }
        });
        let history = HistoryFile::in_folder(state.path().to_path_buf(), "pprof");
        assert_eq!(history.read().len(), 4 * LINES);
    }
}
