//! The command lines of the database's commands: `load`, `ls`, `rm`, `sql`, `schema`.

use clap::Args;
use heapprof_report::Format;

use super::{FileModeArgs, OutputArgs, QuestionArgs, format};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Files to load, each under its own name without endings
    #[arg(value_name = "PROFILE", required = true, value_parser = name::parser())]
    pub(crate) profiles: Vec<String>,
    /// Add the files up and load the sum under this name
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: Format,
    /// Unit of totals
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Names in the database
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// One statement that only reads
    #[arg(value_name = "STATEMENT")]
    pub(crate) statement: String,
    /// Ask this profile instead of the database; may be repeated
    #[arg(short, long, value_name = "PROFILE", value_parser = name::parser())]
    pub(crate) profile: Vec<String>,
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Show the statements that made the database's tables, instead of the tables of profiles
    #[arg(long)]
    pub(crate) database: bool,
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
