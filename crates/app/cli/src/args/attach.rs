//! The command lines of `attach` and `detach`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use heapprof_recorder::AllocatorChoice;

use super::record::{FrameSelection, period, time};
use super::{FileModeArgs, LogArgs};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// End a recording that heapprof attach has not ended itself
    #[arg(long, conflicts_with_all = ["exact", "period", "time", "threads", "frames"])]
    #[arg(conflicts_with = "trust_filter")]
    #[arg(conflicts_with_all = ["command_line", "output", "log", "file_mode"])]
    pub(crate) stop: bool,
    /// Record every allocation instead of a sample
    #[arg(long, conflicts_with = "period")]
    pub(crate) exact: bool,
    /// Average number of bytes between samples
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = period)]
    pub(crate) period: u64,
    /// End the recording after this time, e.g. 30s or 2m
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// Record which thread allocated what, as labels `thread` and `tid`
    #[arg(long)]
    pub(crate) threads: bool,
    /// Which frames to keep in stacks with an interpreter such as Perl
    #[arg(long, value_enum, default_value_t = FrameSelection::Script, value_name = "WHICH")]
    pub(crate) frames: FrameSelection,
    /// Which allocators inside files to record: auto (all that are known), none, or names
    #[arg(long, value_name = "LIST", default_value_t = AllocatorChoice::ALL)]
    #[arg(value_parser = AllocatorChoice::parse)]
    pub(crate) allocators: AllocatorChoice,
    /// Put the whole command line of the program into the profile, with its passwords
    #[arg(long)]
    pub(crate) command_line: bool,
    /// Take a system call filter that can't be read to allow what attach needs, as those of Docker,
    /// containerd and CRI-O do
    #[arg(long)]
    pub(crate) trust_filter: bool,
    /// Write to this file; the default is heapprof.PROGRAM.PID.N.pb.gz in this folder
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    /// The process, by its id or name: NUMBER, NAME, pid:NUMBER or pid:NAME
    #[arg(value_name = "PROCESS", required = true, value_parser = name::parser())]
    pub(crate) processes: Vec<String>,
}

impl AttachArgs {
    /// Whether every allocation is recorded.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact || self.log.log.is_some()
    }
}
