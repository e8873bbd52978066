//! The command line of `leaks`, the one report that reads rule files of another tool.

use std::path::PathBuf;

use clap::Args;

use super::{GateArgs, LimitArg, ProfileArgs, QuestionArgs, ReportArgs};

#[derive(Debug, Args)]
pub(crate) struct LeaksArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    /// Pair the allocations and frees of this log, which attach --log or record --log wrote
    #[arg(long, value_name = "FILE", conflicts_with = "profiles")]
    pub(crate) log: Option<PathBuf>,
    /// Count the stacks that a rule in this LeakSanitizer suppression file matches, but do not list
    /// them; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
