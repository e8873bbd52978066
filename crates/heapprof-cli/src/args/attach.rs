//! The command lines of `attach` and `detach`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::record::{Frames, period, time};
use super::{FileModeArgs, LogArgs};

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Record every allocation instead of a sample
    #[arg(long, conflicts_with = "period")]
    pub(crate) exact: bool,
    /// Average bytes between samples
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = period)]
    pub(crate) period: u64,
    /// Leave the program after this time, e.g. 30s or 2m
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// Keep each thread's share, as labels `thread` and `tid`
    #[arg(long)]
    pub(crate) threads: bool,
    /// Which frames are kept of a stack that leads through an interpreter such as Perl
    #[arg(long, value_enum, default_value_t = Frames::Script, value_name = "WHICH")]
    pub(crate) frames: Frames,
    /// Write to this file; without it the profile is heapprof.PROGRAM.PID.N.pb.gz in this folder
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    /// The process, by its number
    #[arg(value_name = "PID", value_parser = pid)]
    pub(crate) pid: u32,
}

impl AttachArgs {
    /// Whether every allocation is recorded.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact || self.log.log.is_some()
    }
}

#[derive(Debug, Args)]
pub(crate) struct DetachArgs {
    /// The process, by its number
    #[arg(value_name = "PID", value_parser = pid)]
    pub(crate) pid: u32,
}

/// A process's number, also as `pid:NUMBER`.
fn pid(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("pid:").unwrap_or(text).parse();
    let number = number
        .ok()
        .filter(|&number| number > 0 && number <= i32::MAX as u32);
    number.ok_or_else(|| "it is no number of a process; ps and pgrep show them".to_string())
}
