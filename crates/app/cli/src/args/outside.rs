//! The command lines of what looks at a recorded process from outside: `dump`, `ps`, `live`,
//! `follow`.

use std::path::PathBuf;

use clap::Args;

use super::record::LineFormat;
use super::size::growth;
use super::{FileModeArgs, ProcessReportArgs};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The process: its number or its name, also as pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", value_parser = name::parser())]
    pub(crate) process: String,
    /// Write to this file; without it the profile is heapprof.PROGRAM.PID.N.pb.gz in this folder
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) report: ProcessReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// The process: its number or its name, also as pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", value_parser = name::parser())]
    pub(crate) process: String,
}

#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// The process: its number or its name, also as pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", value_parser = name::parser())]
    pub(crate) process: String,
    /// Say a line each time the memory in use that it allocated has grown by this
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = growth)]
    pub(crate) min: u64,
    /// How it is said: PID, FILE:LINE, +BYTES, FUNCTION, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t = LineFormat::Text, value_name = "FORM")]
    pub(crate) format: LineFormat,
}
