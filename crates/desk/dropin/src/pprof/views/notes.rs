//! The notes of a report that a page shows. The page has no terminal, so its report gets this host.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use heapprof_profile::Profile;

use crate::host::{
    CommandProcess, CommandReader, DropinHost, FetchOptions, LineCompleter, PromptStream,
    ReportBody, ToolReadOptions, WebPageRequest,
};

/// A host that keeps the notes of a report, and what the report prints above its rows. The profile
/// is read already, so the host refuses to read or write any file.
#[derive(Default)]
pub(super) struct ReportNotes(RefCell<Vec<String>>);

impl ReportNotes {
    /// Returns the notes in their order.
    pub(super) fn into_notes(self) -> Vec<String> {
        self.0.into_inner()
    }
}

const CLOSED: &str = "a page reads and writes no file";

impl DropinHost for ReportNotes {
    fn note(&self, text: &str) {
        self.0.borrow_mut().push(text.to_string());
    }

    fn print_lines(&self, _: &str) {}

    fn post(&self, _: &str, _: String, _: &FetchOptions) -> Result<Vec<u8>> {
        bail!(CLOSED)
    }

    fn command_reader(
        &self,
        _: &str,
        _: PromptStream,
        _: Box<dyn LineCompleter>,
    ) -> Result<Box<dyn CommandReader>> {
        bail!(CLOSED)
    }

    fn run_in_copy(&self, _: &mut dyn FnMut(CommandProcess) -> Result<()>) -> Result<bool> {
        bail!(CLOSED)
    }

    fn help(&self) -> String {
        String::new()
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    fn read(&self, _: &str, _: ToolReadOptions) -> Result<Profile> {
        bail!(CLOSED)
    }

    fn fetch(&self, _: &str, _: &FetchOptions, _: ToolReadOptions) -> Result<Profile> {
        bail!(CLOSED)
    }

    fn is_terminal(&self) -> bool {
        false
    }

    fn write(&self, file: Option<&Path>, body: ReportBody<'_>) -> Result<()> {
        if file.is_some() {
            bail!(CLOSED);
        }
        let mut text = Vec::new();
        body(&mut text)?;
        for line in String::from_utf8_lossy(&text).lines() {
            self.note(line);
        }
        Ok(())
    }

    fn write_into(&self, _: &str, _: File, _: ReportBody<'_>) -> Result<()> {
        bail!(CLOSED)
    }

    fn serve(&self, _: &WebPageRequest) -> Result<()> {
        bail!(CLOSED)
    }
}
