//! The host of the commands of a shell: their messages are lines of the dialogue.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;
use heapprof_profile::Profile;

use crate::host::{
    CommandProcess, CommandReader, DropinHost, FetchOptions, LineCompleter, PromptStream,
    ReportBody, ToolReadOptions, WebPageRequest,
};

/// The host of the shell's commands, which passes on to the program what a command needs.
pub(super) struct SessionHost<'a>(pub(super) &'a dyn DropinHost);

impl DropinHost for SessionHost<'_> {
    fn note(&self, text: &str) {
        self.0.print_lines(text);
    }

    fn print_lines(&self, text: &str) {
        self.0.print_lines(text);
    }

    fn help(&self) -> String {
        self.0.help()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn read(&self, name: &str, how: ToolReadOptions) -> Result<Profile> {
        self.0.read(name, how)
    }

    fn fetch(&self, url: &str, transfer: &FetchOptions, how: ToolReadOptions) -> Result<Profile> {
        self.0.fetch(url, transfer, how)
    }

    fn post(&self, url: &str, text: String, transfer: &FetchOptions) -> Result<Vec<u8>> {
        self.0.post(url, text, transfer)
    }

    fn command_reader(
        &self,
        shell: &str,
        prompts: PromptStream,
        completer: Box<dyn LineCompleter>,
    ) -> Result<Box<dyn CommandReader>> {
        self.0.command_reader(shell, prompts, completer)
    }

    fn run_apart(&self, command: &mut dyn FnMut(CommandProcess) -> Result<()>) -> Result<bool> {
        self.0.run_apart(command)
    }

    fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }

    fn write(&self, file: Option<&Path>, body: ReportBody<'_>) -> Result<()> {
        self.0.write(file, body)
    }

    fn write_into(&self, name: &str, file: File, body: ReportBody<'_>) -> Result<()> {
        self.0.write_into(name, file, body)
    }

    fn serve(&self, page: &WebPageRequest) -> Result<()> {
        self.0.serve(page)
    }
}
