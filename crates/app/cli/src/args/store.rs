//! The command lines of the database's commands: `load`, `ls`, `rm`, `sql`, `schema`.

use clap::Args;
use heapprof_process::clock;
use heapprof_report::ReportFormat;

use super::{FileModeArgs, OutputArgs, QuestionArgs, format};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The profiles to load, each under its file name without extensions; a folder stands for the
    /// profiles in it
    #[arg(value_name = "PROFILE", required = true, value_parser = name::parser())]
    pub(crate) profiles: Vec<String>,
    /// Add the files up and load the sum under this name
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Add a label to the profile, such as service=shop or host=web1; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Vec<(String, String)>,
    /// When the values were taken, if the file has no time or a wrong one: 2026-11-20T14:00:00Z,
    /// @SECONDS, 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<i64>,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
}

/// The words that mean something else in a selector.
const RESERVED_LABEL_KEYS: [&str; 6] = ["since", "until", "last", "name", "pid", "rolled_up"];

fn label(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = split.ok_or("a label is KEY=VALUE, such as service=shop")?;
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "~!,=".contains(c);
    if key.contains(is_odd) {
        return Err(format!("the key {key:?} could not be used in a selector"));
    }
    if RESERVED_LABEL_KEYS.contains(&key) {
        return Err(format!("{key} is a reserved word in a selector"));
    }
    Ok((key.to_string(), value.to_string()))
}

fn time(text: &str) -> Result<i64, String> {
    heapprof_analysis::series::parse_time(text, clock::nanos())
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: ReportFormat,
    /// Unit of totals
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The names of the profiles in the database
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// One SQL statement that only reads
    #[arg(value_name = "STATEMENT")]
    pub(crate) statement: String,
    /// Read this profile instead of the database; may be repeated
    #[arg(short, long, value_name = "PROFILE", value_parser = name::parser())]
    pub(crate) profile: Vec<String>,
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: ReportFormat,
    #[command(flatten)]
    pub(crate) question: QuestionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Show the statements that create the tables of the database, instead of the tables of
    /// profiles
    #[arg(long)]
    pub(crate) database: bool,
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: ReportFormat,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
