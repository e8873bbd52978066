//! Source files for `-list`, searched as in pprof: absolute names as they are, others in the
//! folders of the search path and in all folders above these.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::graph::PathTrimmer;
use crate::report::PprofReportOptions;
use crate::source_text::read_source;
use anyhow::{Context, Result};

type SourceLinesResult = Result<Rc<[Vec<u8>]>, String>;

/// Cache of source files, which reads each file only once.
pub(super) struct SourceFileCache {
    trim: PathTrimmer,
    path: String,
    cache: RefCell<HashMap<String, SourceLinesResult>>,
}

/// Length in bytes at which a line is too long for pprof. pprof reads neither such a line nor
/// anything after it.
const MAX_LINE_LENGTH: usize = 64 << 10;

impl SourceFileCache {
    pub(super) fn new(options: &PprofReportOptions) -> Result<Self> {
        let path = match options.source_path.as_str() {
            "" => std::env::current_dir()
                .context("could not stat current dir")?
                .to_string_lossy()
                .into_owned(),
            path => path.to_string(),
        };
        Ok(Self {
            trim: PathTrimmer::new(&options.trim_path, &path),
            path,
            cache: RefCell::default(),
        })
    }

    /// Returns the lines of a file, or why it can't be read.
    pub(super) fn read(&self, file: &str) -> SourceLinesResult {
        let mut known = self.cache.borrow_mut();
        let lines = known
            .entry(file.to_string())
            .or_insert_with(|| self.open(file).map(|bytes| split_lines(bytes).into()));
        lines.clone()
    }

    fn open(&self, file: &str) -> Result<Vec<u8>, String> {
        let trimmed = self.trim.apply(file);
        if Path::new(trimmed).is_absolute() {
            return match read_source(Path::new(trimmed)) {
                Ok(bytes) => Ok(bytes),
                Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => Ok(Vec::new()),
                Err(error) => Err(format!("open {trimmed}: {}", go_error_text(&error))),
            };
        }
        let folders = self.path.split(':').map(PathBuf::from);
        let found = folders.into_iter().find_map(|folder| {
            let mut above = folder.ancestors();
            above.find_map(|folder| read_source(&folder.join(trimmed)).ok())
        });
        found.ok_or_else(|| format!("could not find file {trimmed} on path {}", self.path))
    }
}

/// Returns the text of a system error as Go writes it.
pub(super) fn go_error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

fn split_lines(bytes: Vec<u8>) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = bytes
        .split(|&b| b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec())
        .collect();
    // A newline at the end of the file does not begin another line.
    if lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    if let Some(long) = lines.iter().position(|line| line.len() >= MAX_LINE_LENGTH) {
        lines.truncate(long);
    }
    lines
}
