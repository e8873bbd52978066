//! The command lines of reports of profiles: `top`, `tree`, `peek`, `traces`, `tags`, `info`.

use clap::Args;
use heapprof_page::parse_percent;

use super::{
    GateArgs, LabelArgs, LimitArg, ProfileArgs, QuestionArgs, ReportArgs, SortArg, SourceArgs,
};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    /// Show every sample type side by side, with the mean size of objects
    #[arg(short, long)]
    pub(crate) wide: bool,
    /// With --wide, the largest width of the text, in columns; 0 sets no limit. The default is the
    /// width of the terminal, otherwise no limit
    #[arg(long, value_name = "COLUMNS", requires = "wide")]
    pub(crate) width: Option<usize>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
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

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    /// Build the tree from the leaves up
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Fold nodes below this share of the total (or of what the filters keep) into (other); 0 shows
    /// all nodes
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_percent)]
    pub(crate) min_percent: f64,
    /// Show each frame on a row of its own, even if the path does not branch
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MatchArgs {
    /// A regular expression that may match anywhere in the name of a function
    #[arg(value_name = "REGEX")]
    pub(crate) regex: String,
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    #[command(flatten)]
    pub(crate) sort: SortArg,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TracesArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    /// Show the largest stack last, at the bottom of the terminal
    #[arg(long)]
    pub(crate) ascending: bool,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    #[command(flatten)]
    pub(crate) labels: LabelArgs,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TagsArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    #[command(flatten)]
    pub(crate) labels: LabelArgs,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
