//! The command line of `diff`.

use clap::Args;

use super::{GateArgs, LimitArg, QuestionArgs, ReportArgs, SortArg};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The profiles before and after, unless --before or --after names them
    #[arg(value_name = "PROFILE", num_args = 0..=2, value_parser = name::parser())]
    pub(crate) profiles: Vec<String>,
    /// Add this profile to the first side (before); may be repeated
    #[arg(long, value_name = "PROFILE", value_parser = name::parser())]
    pub(crate) before: Vec<String>,
    /// Add this profile to the second side (after); may be repeated
    #[arg(long, value_name = "PROFILE", value_parser = name::parser())]
    pub(crate) after: Vec<String>,
    /// Scale the values of the second side so that both totals are equal
    #[arg(long)]
    pub(crate) normalize: bool,
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    #[command(flatten)]
    pub(crate) sort: SortArg,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
