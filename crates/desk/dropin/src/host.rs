//! What the drop-ins need of the program that they are part of.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use heapprof_formats::ProfileReading;
use heapprof_profile::Profile;

/// What a tool makes of a file.
pub type ProfileConverter = fn(ProfileReading) -> Profile;

/// Writes a report.
pub type ReportBody<'a> = Box<dyn FnOnce(&mut dyn Write) -> Result<()> + 'a>;

/// How a tool reads a file.
#[derive(Clone, Copy)]
pub struct ToolReadOptions {
    /// What it makes of the file.
    pub convert: ProfileConverter,
    /// Whether it passes stacks on as they are written, or does not look at them.
    pub stacks_as_written: bool,
    /// Whether threads have the numbers that their file has for them, even if these do not add up
    /// to its totals.
    pub threads_as_counted: bool,
}

/// How to fetch a profile from a server.
#[derive(Debug, Default)]
pub struct FetchOptions {
    /// How long an answer may take to begin. The default is a minute, or more if the URL asks for
    /// seconds of profiling.
    pub timeout: Option<Duration>,
    /// Whom the server knows us as: a certificate and its private key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whose word is taken for who the server is. The default is Mozilla's list.
    pub authorities: Option<PathBuf>,
    /// Whether any certificate is taken.
    pub insecure: bool,
}

/// A page that a server shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebPageRequest {
    /// The port; 0 is any that is free.
    pub port: u16,
    /// Whether the browser is opened.
    pub opens_browser: bool,
    /// The profiles, which are added up.
    pub sources: Vec<String>,
    /// What they are compared with.
    pub base: Option<String>,
    /// Keeps only stacks with a matching frame; empty keeps all.
    pub focus: String,
    /// Leaves out stacks with a matching frame; empty leaves none out.
    pub ignore: String,
}

/// The program that a drop-in is part of: it reads, writes and says things.
pub trait DropinHost {
    /// Says something that the user may want to know; the work goes on.
    fn note(&self, text: &str);

    /// Shows the whole help to somebody who typed too little.
    fn explain(&self, help: &str);

    /// The help of the command that runs.
    fn help(&self) -> String;

    /// The path that an argument means.
    fn path(&self, name: &str) -> PathBuf;

    /// The profile behind an argument: a file, stdin, or a name that the program knows.
    ///
    /// # Errors
    /// The argument means nothing, or can't be read as a profile.
    fn read(&self, name: &str, how: ToolReadOptions) -> Result<Profile>;

    /// The profile at a URL.
    ///
    /// # Errors
    /// It can't be fetched, or is no profile.
    fn fetch(&self, url: &str, transfer: &FetchOptions, how: ToolReadOptions) -> Result<Profile>;

    /// Whether reports go to a terminal.
    fn is_terminal(&self) -> bool;

    /// Writes what `body` writes to a file, or to stdout without one. The file gets its name when
    /// it is whole.
    ///
    /// # Errors
    /// The body's, and what writing says.
    fn write(&self, file: Option<&Path>, body: ReportBody<'_>) -> Result<()>;

    /// Writes what `body` writes to an open file, whose name errors tell.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_into(&self, name: &str, file: File, body: ReportBody<'_>) -> Result<()>;

    /// Serves a page until it is ended.
    ///
    /// # Errors
    /// The profiles can't be read, or the port can't be had.
    fn serve(&self, page: &WebPageRequest) -> Result<()>;
}
