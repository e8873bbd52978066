//! The lines of source files, as the scripts read them.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::source_text::read_source;

/// Source files that were read. All of them are dropped when there are too many.
#[derive(Debug, Default)]
pub(super) struct SourceLineCache {
    /// The lines of each file, with their line ends. `None` if the file can't be read.
    files: HashMap<String, Option<Vec<String>>>,
}

/// Maximum number of files in the cache.
const MAX_FILES: usize = 100;

impl SourceLineCache {
    /// Returns a line of a file with its line end. Reading a file for the first time may fail.
    /// Then the function returns the reason once, and later no lines.
    pub(super) fn line(&mut self, file: &str, number: i64) -> io::Result<Option<&str>> {
        if !self.files.contains_key(file) {
            if self.files.len() > MAX_FILES {
                self.files.clear();
            }
            let read = read_lines(Path::new(file));
            let error = read
                .as_ref()
                .err()
                .map(|e| io::Error::new(e.kind(), e.to_string()));
            self.files.insert(file.to_string(), read.ok());
            if let Some(error) = error {
                return Err(error);
            }
        }
        // Line 0 is there, but has no text.
        let Some(Some(lines)) = self.files.get(file) else {
            return Ok(None);
        };
        Ok(match usize::try_from(number) {
            Ok(0) => Some(""),
            Ok(number) => lines.get(number - 1).map(String::as_str),
            Err(_) => None,
        })
    }
}

/// Reads all lines of a file, with their line ends.
pub(super) fn read_lines(file: &Path) -> io::Result<Vec<String>> {
    let bytes = read_source(file)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.split_inclusive('\n').map(str::to_string).collect())
}
