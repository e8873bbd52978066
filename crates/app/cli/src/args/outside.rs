//! The command lines of what looks at a recorded process from outside: `dump`, `live`,
//! `growth follow`.

use std::path::PathBuf;

use clap::Args;

use super::FileModeArgs;
use super::record::LineFormat;
use super::size::growth;
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The process, by its id or name: NUMBER, NAME, pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", value_parser = name::parser())]
    pub(crate) process: String,
    /// Write to this file; the default is heapprof.PROGRAM.PID.N.pb.gz in this folder
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// The process, by its id or name: NUMBER, NAME, pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", value_parser = name::parser())]
    pub(crate) process: String,
}

#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// The process, by its id or name: NUMBER, NAME, pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", value_parser = name::parser())]
    pub(crate) process: String,
    /// Report a source line each time its memory in use has grown by this size
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = growth)]
    pub(crate) min: u64,
    /// The form of a report: PID, FILE:LINE, +BYTES, FUNCTION, or one JSON object per line
    #[arg(short, long, value_enum, default_value_t = LineFormat::Text, value_name = "FORM")]
    pub(crate) format: LineFormat,
}
