//! The command line of `report`, the page to look at.

use clap::{Args, ValueEnum};

use super::list::SourceArgs;
use super::{OutputArgs, ProfileArgs, QuestionArgs};
use crate::name;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathNames {
    /// As the profile has them
    Full,
    /// With ~ for the home folder
    Short,
    /// No paths
    None,
}

impl From<PathNames> for heapprof_page::PathNames {
    fn from(which: PathNames) -> Self {
        match which {
            PathNames::Full => Self::Full,
            PathNames::Short => Self::Short,
            PathNames::None => Self::None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    /// Compare with this profile; may be repeated
    #[arg(long, value_name = "PROFILE", value_parser = name::parser())]
    pub(crate) base: Vec<String>,
    /// The largest number of nodes of the call tree; the smallest nodes are folded into (other)
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) max_nodes: usize,
    /// How the page shows the paths of source files and profiles
    #[arg(long, value_enum, default_value_t = PathNames::Short, value_name = "WHICH")]
    pub(crate) paths: PathNames,
    /// Replace all names with hashes, and leave out paths and sources
    #[arg(long, conflicts_with = "source")]
    pub(crate) anonymize: bool,
    /// Put the text of source lines into the page
    #[arg(long)]
    pub(crate) source: bool,
    #[command(flatten)]
    pub(crate) source_files: SourceArgs,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
