//! The interface through which the drop-ins use the program that they are part of.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use heapprof_formats::ProfileReading;
use heapprof_profile::Profile;

/// Converts a file that was read to the profile that a tool sees.
pub type ProfileConverter = fn(ProfileReading) -> Profile;

/// Writes a report to a writer.
pub type ReportBody<'a> = Box<dyn FnOnce(&mut dyn Write) -> Result<()> + 'a>;

/// How a tool reads a file.
#[derive(Clone, Copy)]
pub struct ToolReadOptions {
    /// Converts the file to a profile.
    pub convert: ProfileConverter,
    /// Whether the tool keeps stacks as they are written, or ignores them.
    pub stacks_as_written: bool,
    /// Whether threads keep the numbers that the file gives them, even if these do not add up to
    /// the file's totals.
    pub threads_as_counted: bool,
}

/// How to fetch a profile from a server.
#[derive(Debug, Default)]
pub struct FetchOptions {
    /// Longest time until an answer begins. The default is a minute, or more if the URL asks for
    /// seconds of profiling.
    pub timeout: Option<Duration>,
    /// Certificate and private key with which we identify ourselves to the server.
    pub client: Option<(PathBuf, PathBuf)>,
    /// File of the certificate authorities that are trusted. The default is Mozilla's list.
    pub authorities: Option<PathBuf>,
    /// Whether any server certificate is accepted.
    pub insecure: bool,
}

/// The page that a drop-in asks the host to serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebPageRequest {
    /// The port; 0 is any free port.
    pub port: u16,
    /// Whether to open the browser.
    pub opens_browser: bool,
    /// The profiles, which are added up.
    pub sources: Vec<String>,
    /// The profile to compare the sources with.
    pub base: Option<String>,
    /// Keeps only stacks with a matching frame; empty keeps all.
    pub focus: String,
    /// Leaves out stacks with a matching frame; empty leaves out none.
    pub ignore: String,
}

/// The program that a drop-in is part of. It reads profiles, writes reports and prints notes.
pub trait DropinHost {
    /// Prints a note for the user; the work goes on.
    fn note(&self, text: &str);

    /// Prints the whole help for a user who typed too little.
    fn explain(&self, help: &str);

    /// Returns the help of the command that runs.
    fn help(&self) -> String;

    /// Returns the path that an argument stands for.
    fn path(&self, name: &str) -> PathBuf;

    /// Reads the profile behind an argument: a file, stdin, or a name that the program knows.
    ///
    /// # Errors
    /// The argument stands for nothing, or can't be read as a profile.
    fn read(&self, name: &str, how: ToolReadOptions) -> Result<Profile>;

    /// Fetches the profile at a URL.
    ///
    /// # Errors
    /// The URL can't be fetched, or its content is no profile.
    fn fetch(&self, url: &str, transfer: &FetchOptions, how: ToolReadOptions) -> Result<Profile>;

    /// Whether reports go to a terminal.
    fn is_terminal(&self) -> bool;

    /// Writes the output of `body` to a file, or to stdout without one. The file gets its name once
    /// it is complete.
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
