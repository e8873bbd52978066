//! The interface between the drop-ins and the program that contains them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use heapprof_formats::ProfileReading;
use heapprof_profile::Profile;

use crate::views::PprofViews;

/// Function that converts the result of reading a file to the profile that a tool works on.
pub type ProfileConverter = fn(ProfileReading) -> Profile;

/// Function that writes a report to a writer.
pub type ReportBody<'a> = Box<dyn FnOnce(&mut dyn Write) -> Result<()> + 'a>;

/// Options with which a tool reads a file.
#[derive(Clone, Copy)]
pub struct ToolReadOptions {
    /// Function that converts the file to a profile.
    pub convert: ProfileConverter,
    /// Whether stacks stay encoded as in the file, because the tool copies or ignores them.
    pub stacks_as_written: bool,
    /// Whether threads keep their values from the file, even if these do not add up to the file's
    /// totals.
    pub threads_as_counted: bool,
}

/// Options for fetching a profile from a server.
#[derive(Debug, Default)]
pub struct FetchOptions {
    /// Longest time until an answer begins. The default is a minute, or longer if the URL tells the
    /// server how many seconds to profile.
    pub timeout: Option<Duration>,
    /// Files of the certificate and the private key with which the client identifies itself.
    pub client: Option<(PathBuf, PathBuf)>,
    /// File of the certificate authorities that are trusted. The default is Mozilla's list.
    pub authorities: Option<PathBuf>,
    /// Whether any server certificate is accepted.
    pub insecure: bool,
}

/// Request of a drop-in to its host: the web page to serve.
#[derive(Clone, Debug, Default)]
pub struct WebPageRequest {
    /// The port to listen on; 0 is any free port.
    pub port: u16,
    /// Whether to open the browser.
    pub opens_browser: bool,
    /// The profiles to show. They are added up.
    pub sources: Vec<String>,
    /// The profile to compare the sources with.
    pub base: Option<String>,
    /// Regular expression: only stacks with a matching frame are shown. Empty shows all.
    pub focus: String,
    /// Regular expression: stacks with a matching frame are left out. Empty leaves out none.
    pub ignore: String,
    /// The views at pprof's paths.
    pub views: Option<Arc<dyn PprofViews>>,
}

/// Function that completes the end of a line.
pub trait LineCompleter {
    /// Returns the position at which the last word of `line` begins, and all words that it may
    /// become.
    fn complete(&self, line: &str) -> (usize, Vec<String>);
}

/// Source of the lines that a shell executes: a person at a terminal, or a script on a pipe.
pub trait CommandReader {
    /// Prints the prompt and returns the next line without its end, or `None` at the end of the
    /// input. A line that the person gave up is empty.
    ///
    /// # Errors
    /// The input can't be read.
    fn read_line(&mut self, prompt: &str) -> Result<Option<String>>;
}

/// Stream on which a shell prints its prompts, if no person types at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptStream {
    /// The stream of the reports.
    Output,
    /// The stream of the messages.
    Messages,
}

/// The process that runs a command of a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandProcess {
    /// A copy of the shell's process, which ends with the command. What the command changes in
    /// memory is lost.
    Copy,
    /// The shell's own process.
    Shell,
}

/// The program that contains a drop-in. It reads profiles, writes reports and prints notes.
pub trait DropinHost {
    /// Prints a note for the user. The command continues.
    fn note(&self, text: &str);

    /// Prints lines on stderr as they are, for example the help for an incomplete command line.
    fn print_lines(&self, text: &str);

    /// Returns the help of the current command.
    fn help(&self) -> String;

    /// Returns the path that an argument names.
    fn path(&self, name: &str) -> PathBuf;

    /// Reads the profile behind an argument: a file, stdin, or a name that the program knows.
    ///
    /// # Errors
    /// The argument names no profile, or can't be read as one.
    fn read(&self, name: &str, how: ToolReadOptions) -> Result<Profile>;

    /// Fetches the profile at a URL.
    ///
    /// # Errors
    /// The URL can't be fetched, or its content is no profile.
    fn fetch(&self, url: &str, transfer: &FetchOptions, how: ToolReadOptions) -> Result<Profile>;

    /// Sends a text to a URL, and returns the answer.
    ///
    /// # Errors
    /// The server does not answer, or its answer is an error or too long.
    fn post(&self, url: &str, text: String, transfer: &FetchOptions) -> Result<Vec<u8>>;

    /// Returns the source of the commands of the shell `shell`, whose history has that name.
    ///
    /// # Errors
    /// The terminal can't be used.
    fn command_reader(
        &self,
        shell: &str,
        prompts: PromptStream,
        completer: Box<dyn LineCompleter>,
    ) -> Result<Box<dyn CommandReader>>;

    /// Runs a command of a shell, in a copy of this process if that is possible, and prints why it
    /// failed. Returns whether the shell goes on: a script ends when the person interrupts a
    /// command.
    ///
    /// # Errors
    /// The command can't be started, or crashed.
    fn run_in_copy(&self, command: &mut dyn FnMut(CommandProcess) -> Result<()>) -> Result<bool>;

    /// Whether reports are written to a terminal.
    fn is_terminal(&self) -> bool;

    /// Writes the output of `body` to a file, or to stdout if `file` is `None`. A file gets its
    /// name only when it is complete.
    ///
    /// # Errors
    /// `body` fails, or writing fails.
    fn write(&self, file: Option<&Path>, body: ReportBody<'_>) -> Result<()>;

    /// Writes the output of `body` to an open file. Error messages call the file `name`.
    ///
    /// # Errors
    /// `body` fails, or writing fails.
    fn write_into(&self, name: &str, file: File, body: ReportBody<'_>) -> Result<()>;

    /// Serves a page until the user ends it.
    ///
    /// # Errors
    /// The profiles can't be read, or the port is not available.
    fn serve(&self, page: &WebPageRequest) -> Result<()>;
}
