//! The host of the commands of a shell: messages are lines of the dialogue, and a command ends when
//! the person interrupts it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use heapprof_profile::Profile;

use crate::host::{
    CommandReader, DropinHost, FetchOptions, LineCompleter, ReportBody, ToolReadOptions,
    WebPageRequest,
};

/// The host of the shell's commands, which passes on to the program what a command needs.
pub(super) struct SessionHost<'a> {
    program: &'a dyn DropinHost,
    interruption: Arc<AtomicBool>,
}

impl<'a> SessionHost<'a> {
    pub(super) fn new(program: &'a dyn DropinHost, interruption: Arc<AtomicBool>) -> Self {
        Self {
            program,
            interruption,
        }
    }

    /// Prints why a command failed.
    pub(super) fn print_error(&self, text: &str) {
        self.program.print_lines(text);
    }
}

impl DropinHost for SessionHost<'_> {
    fn note(&self, text: &str) {
        self.program.print_lines(text);
    }

    fn print_lines(&self, text: &str) {
        self.program.print_lines(text);
    }

    fn help(&self) -> String {
        self.program.help()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.program.path(name)
    }

    fn read(&self, name: &str, how: ToolReadOptions) -> Result<Profile> {
        self.program.read(name, how)
    }

    fn fetch(&self, url: &str, transfer: &FetchOptions, how: ToolReadOptions) -> Result<Profile> {
        self.program.fetch(url, transfer, how)
    }

    fn command_reader(
        &self,
        shell: &str,
        completer: Box<dyn LineCompleter>,
    ) -> Result<Box<dyn CommandReader>> {
        self.program.command_reader(shell, completer)
    }

    fn is_interrupted(&self) -> bool {
        self.interruption.load(Ordering::Relaxed)
    }

    fn is_terminal(&self) -> bool {
        self.program.is_terminal()
    }

    fn write(&self, file: Option<&Path>, body: ReportBody<'_>) -> Result<()> {
        self.program.write(file, body)
    }

    fn write_into(&self, name: &str, file: File, body: ReportBody<'_>) -> Result<()> {
        self.program.write_into(name, file, body)
    }

    fn serve(&self, page: &WebPageRequest) -> Result<()> {
        self.program.serve(page)
    }
}
