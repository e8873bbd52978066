//! Where a report goes, and in which form.

use std::path::{Path, PathBuf};

use clap::Args;
use heapprof_report::ReportFormat;

use super::format;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Write to this file, not stdout (-); the file appears whole or not at all
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl OutputArgs {
    /// The file; `None` is stdout.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|file| *file != "-")
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ReportArgs {
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: ReportFormat,
    /// Unit of values: auto, B, KiB, MiB, GiB, TiB, PiB, ns, us, ms, s, min, h
    #[arg(long, value_name = "UNIT", hide_short_help = true)]
    pub(crate) unit: Option<String>,
    /// Show whole names, with parameters, all template arguments and defaults
    #[arg(long, hide_short_help = true)]
    pub(crate) full_names: bool,
    /// Print the SQL statements that make the report, instead of the report
    #[arg(long, hide_short_help = true)]
    pub(crate) show_sql: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
