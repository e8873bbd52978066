//! The command lines of what is asked of many moments: `series`, `growth`, `prune`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use heapprof_report::ReportFormat;
use heapprof_stores::RetentionRule;

use super::wiretap::since;
use super::{FileModeArgs, LimitArg, OutputArgs, QuestionArgs, ReportArgs, SortArg, format};

#[derive(Debug, Args)]
pub(crate) struct SeriesArgs {
    /// Which moments, such as service=shop,host~web,since=2h; without SELECTOR, all moments
    #[arg(value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
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
pub(crate) struct GrowthArgs {
    /// Which moments, such as service=shop,since=2d; without SELECTOR, all moments
    #[arg(value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Rank stacks instead of functions
    #[arg(long)]
    pub(crate) stacks: bool,
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
pub(crate) struct PruneArgs {
    /// Which moments may be removed, such as service=shop
    #[arg(value_name = "SELECTOR")]
    pub(crate) selector: String,
    /// Keep all moments younger than AGE (7d), or one moment of each process in each STEP up to AGE
    /// (1h=30d); may be repeated
    #[arg(long, value_name = "AGE|STEP=AGE", required = true, value_parser = keep)]
    pub(crate) keep: Vec<RetentionRule>,
    /// For each STEP, combine the moments of all hosts of a service into one profile
    #[arg(long)]
    pub(crate) roll_up: bool,
    /// Show what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Which moments, such as service=shop,since=2d; without SELECTOR, all moments
    #[arg(value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Where to write the Parquet files, with a folder for each batch: a folder, or the address of
    /// an object store
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) parquet: PathBuf,
    /// The largest number of samples in a batch
    #[arg(long, value_name = "SAMPLES", default_value = "2000000")]
    pub(crate) batch: usize,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The folder or address to which heapprof db export --parquet wrote
    #[arg(value_name = "DIR|URL")]
    pub(crate) place: PathBuf,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
}

/// Which values in use are shown of several moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverTimeMode {
    /// The values at the end
    Last,
    /// The mean over all moments
    Mean,
    /// The values at the moment at which the most was in use
    Max,
}

fn keep(text: &str) -> Result<RetentionRule, String> {
    let wrong = |why: String| format!("{why}; write for example 7d, or 1h=30d");
    let (step, age) = match text.split_once('=') {
        Some((step, age)) => (Some(since(step).map_err(wrong)?), age),
        None => (None, text),
    };
    let age = since(age).map_err(wrong)?;
    if step.is_some_and(|step| step > age) {
        return Err(wrong(
            "the step is longer than the age up to which it is kept".to_string(),
        ));
    }
    Ok(RetentionRule { step, age })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rules_are_read() {
        let hours = |n: u64| Duration::from_secs(3600 * n);
        let rule = |step, age| Ok(RetentionRule { step, age });
        assert_eq!(keep("7d"), rule(None, hours(168)));
        assert_eq!(keep("1h=30d"), rule(Some(hours(1)), hours(720)));
        assert!(keep("soon").is_err() && keep("1h=").is_err() && keep("=1h").is_err());
        assert!(keep("365d=1d").is_err());
    }
}
