//! The command lines of what makes files of profiles: `merge`, `convert`, `symbolize`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use heapprof_analysis::Granularity;

use super::{FileModeArgs, OutputArgs, ProfileArgs};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConvertFormat {
    /// pprof's format, gzipped
    Pprof,
    /// Folded stacks of one sample type
    Folded,
    /// Everything, with one sample on each line
    Json,
    /// One row for each sample, one column for each sample type
    Csv,
    /// speedscope's JSON, with one profile for each sample type
    Speedscope,
    /// Heap profile text, for pprof, google-pprof and jeprof
    Gperftools,
    /// Heap profile text with names, for google-pprof and jeprof
    Symbolized,
    /// Firefox Profiler's JSON, with one thread for each sample type
    Firefox,
    /// The call graph, for KCachegrind and callgrind_annotate
    Callgrind,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    /// The format to write
    #[arg(long, value_enum, required = true)]
    pub(crate) to: Option<ConvertFormat>,
    /// For folded, the sample type whose values are written
    #[arg(short = 't', long, value_name = "TYPE")]
    pub(crate) sample_type: Option<String>,
    /// What a frame is: any LEVEL for folded; functions or lines for speedscope
    #[arg(short, long, value_name = "LEVEL")]
    pub(crate) granularity: Option<Granularity>,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SymbolizeArgs {
    /// The profile, a file. With -o, it may also be - for stdin, a URL, or a name in the database
    #[arg(value_name = "FILE", value_parser = name::parser())]
    pub(crate) file: String,
    /// A folder with debug files or binaries; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Fetch missing debug files from the servers in DEBUGINFOD_URLS, by build id
    #[arg(long)]
    pub(crate) debuginfod: bool,
    /// Look up files of the profiled machine below this folder instead of /
    #[arg(long, value_name = "DIR")]
    pub(crate) sysroot: Option<PathBuf>,
    /// Add N to each address that is looked up; use -1 if the addresses are return addresses
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub(crate) adjust: i64,
    /// Also look up addresses that have names already
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    /// Write to this file (- is stdout), and leave the profile as it is
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
}

impl ConvertArgs {
    /// Returns the format to write, without which a command line is not valid.
    pub(crate) fn format(&self) -> ConvertFormat {
        self.to.unwrap_or(ConvertFormat::Pprof)
    }
}
