//! The command lines of `stats` and `timeline`.

use clap::Args;

use super::{ProfileArgs, QuestionArgs, ReportArgs};

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
