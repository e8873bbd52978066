//! The command line of `list`, and where source files are.

use std::path::PathBuf;

use clap::Args;
use heapprof_page::SourceFolders;

use super::{LimitArg, ProfileArgs, QuestionArgs, ReportArgs};

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// A regular expression that may match anywhere in the name of a function
    #[arg(value_name = "REGEX")]
    pub(crate) regex: String,
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Show the instructions of each line, too, with their values
    #[arg(long, conflicts_with = "show_sql")]
    pub(crate) asm: bool,
    /// A folder with binaries or debug files for --asm; may be repeated
    #[arg(long, value_name = "DIR", requires = "asm")]
    pub(crate) debug_dir: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Where source files are.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SourceArgs {
    /// Folders to search for source files, separated by colons; the default is the current folder
    /// and all folders above it
    #[arg(long, value_name = "PATH", value_delimiter = ':')]
    source_path: Vec<PathBuf>,
    /// Prefixes to remove from file names in the profile, separated by colons
    #[arg(long, value_name = "PATH", value_delimiter = ':')]
    trim_path: Vec<String>,
}

impl SourceArgs {
    /// Where source files are, for the page and reports.
    pub(crate) fn folders(&self) -> SourceFolders {
        SourceFolders {
            folders: self.source_path.clone(),
            trims: self.trim_path.clone(),
            advice: SOURCE_ADVICE,
        }
    }
}

/// What to do about a source file that is not found.
pub(crate) const SOURCE_ADVICE: &str = "; give its folder with --source-path";

/// What to do about a binary that is not found, or is a different one.
pub(crate) const BINARY_ADVICE: &str = "; give the folder of the right one with --debug-dir";
