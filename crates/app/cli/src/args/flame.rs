//! The command line of `flame`, the one report that is a picture.

use clap::{Args, ValueEnum};
use heapprof_page::parse_percent;

use super::{OutputArgs, ProfileArgs, QuestionArgs};
use crate::name;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlameFormat {
    /// An SVG picture
    Svg,
    /// Folded stacks, for other flame graph tools
    Folded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlameRoot {
    /// Below; with --reverse, or if stacks are too deep for a screen, on top
    Auto,
    /// On top, stacks grow down
    Top,
    /// Below, stacks grow up
    Below,
}

#[derive(Debug, Args)]
pub(crate) struct FlameArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    /// Show the difference from this profile; may be repeated
    #[arg(long, value_name = "PROFILE", value_parser = name::parser())]
    pub(crate) base: Vec<String>,
    /// Build the graph from the leaves
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Fold frames below this share of the total (or of what the filters keep) into (other); 0
    /// shows all frames
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = parse_percent)]
    pub(crate) min_percent: f64,
    /// Where the root is in the picture
    #[arg(long, value_enum, default_value_t = FlameRoot::Auto, value_name = "WHERE")]
    pub(crate) root: FlameRoot,
    /// The title, instead of the sample type and its total
    #[arg(long)]
    pub(crate) title: Option<String>,
    /// svg or folded
    #[arg(short, long, value_enum, default_value_t = FlameFormat::Svg)]
    pub(crate) format: FlameFormat,
    /// Unit of values in titles: auto, B, KiB, MiB, GiB, TiB, PiB
    #[arg(long, value_name = "UNIT", hide_short_help = true)]
    pub(crate) unit: Option<String>,
    /// Print the SQL statements that make the report, instead of the report
    #[arg(long, hide_short_help = true)]
    pub(crate) show_sql: bool,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
