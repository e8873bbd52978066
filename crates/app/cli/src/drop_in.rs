//! This program as the host of the drop-in replacements for `pprof` and `jeprof`.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;
use heapprof_dropin::{
    CommandProcess, CommandReader, DropinHost, FetchOptions, LineCompleter, PromptStream,
    ReportBody, ToolReadOptions, WebPageRequest,
};
use heapprof_files::write_named;
use heapprof_profile::Profile;
use heapprof_prompt::{INTERRUPTED, can_edit_lines, exit_code_of_copy};
use heapprof_sources::ProfileSources;

use crate::args::help_of;
use crate::{messages, name, output};

/// The program as the host of a drop-in: it reads, writes and prints for the drop-in.
pub(crate) struct CommandLineHost<'a> {
    /// The name of the drop-in that runs.
    pub(crate) command: &'static str,
    pub(crate) sources: &'a ProfileSources,
    /// The function that serves a page.
    pub(crate) serve: fn(&ProfileSources, &WebPageRequest) -> Result<()>,
}

impl DropinHost for CommandLineHost<'_> {
    fn note(&self, text: &str) {
        messages::note(text);
    }

    fn print_lines(&self, text: &str) {
        messages::help(text);
    }

    fn post(&self, url: &str, text: String, transfer: &FetchOptions) -> Result<Vec<u8>> {
        heapprof_sources::post(url, text, transfer)
    }

    fn command_reader(
        &self,
        shell: &str,
        prompts: PromptStream,
        completer: Box<dyn LineCompleter>,
    ) -> Result<Box<dyn CommandReader>> {
        output::command_reader(shell, prompts, completer)
    }

    fn help(&self) -> String {
        help_of(self.command)
    }

    fn path(&self, name: &str) -> PathBuf {
        name::path(name)
    }

    fn read(&self, name: &str, how: ToolReadOptions) -> Result<Profile> {
        self.sources.read_as_tool(name, how)
    }

    fn fetch(&self, url: &str, transfer: &FetchOptions, how: ToolReadOptions) -> Result<Profile> {
        self.sources.fetch_as_tool(url, transfer, how)
    }

    fn run_in_copy(&self, command: &mut dyn FnMut(CommandProcess) -> Result<()>) -> Result<bool> {
        let code = exit_code_of_copy(|process| match command(process) {
            Err(error) if !output::is_broken_pipe(&error) => {
                self.print_lines(&messages::text(&error));
                2
            }
            _ => 0,
        })?;
        Ok(code != INTERRUPTED || can_edit_lines())
    }

    fn is_terminal(&self) -> bool {
        output::is_terminal(None)
    }

    fn write(&self, file: Option<&Path>, body: ReportBody<'_>) -> Result<()> {
        output::write(file, body)
    }

    fn write_into(&self, name: &str, file: File, body: ReportBody<'_>) -> Result<()> {
        write_named(name, file, body)
    }

    fn serve(&self, page: &WebPageRequest) -> Result<()> {
        (self.serve)(self.sources, page)
    }
}
