//! The command lines of what runs programs several times: `compare-allocators`, `bench`.

use std::ffi::OsString;

use clap::Args;

use super::ProcessReportArgs;

/// How programs are run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Go on if a program fails
    #[arg(short, long)]
    pub(crate) ignore_failure: bool,
    /// Show what the programs print, instead of discarding it
    #[arg(long)]
    pub(crate) show_output: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareAllocatorsArgs {
    /// The allocators to compare, separated by commas; all are compared with the first. An
    /// allocator is a name such as glibc, jemalloc, tcmalloc or mimalloc, the path of a library, or
    /// glibc with tunables, e.g. glibc:arena_max=1+mmap_threshold=65536. The default is glibc and
    /// all that are installed
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) allocators: Vec<String>,
    /// Number of measured runs with each allocator
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Number of unmeasured runs with each allocator first, to warm up the file cache
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) warmup: u32,
    /// Leave out the recorded run, which shows how much of the memory was in use
    #[arg(long)]
    pub(crate) no_heap: bool,
    #[command(flatten)]
    pub(crate) runs_of: RunArgs,
    #[command(flatten)]
    pub(crate) report: ProcessReportArgs,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The candidates: commands, split into words without a shell, or with --perl, pieces of Perl
    /// code
    #[arg(required = true, value_name = "CANDIDATE")]
    pub(crate) candidates: Vec<String>,
    /// The candidates are Perl code
    #[arg(long)]
    pub(crate) perl: bool,
    /// The perl that runs the candidates
    #[arg(long, value_name = "PATH", default_value = "perl", requires = "perl")]
    pub(crate) perl_path: String,
    /// A candidate that does nothing, whose peak is subtracted from the other peaks; with --perl,
    /// the default is no code
    #[arg(long, value_name = "CANDIDATE")]
    pub(crate) empty: Option<String>,
    /// Number of runs of each candidate
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    #[command(flatten)]
    pub(crate) runs_of: RunArgs,
    #[command(flatten)]
    pub(crate) report: ProcessReportArgs,
}
