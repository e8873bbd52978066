//! The command line of `perl-heap`.

use std::path::PathBuf;

use clap::Args;
use heapprof_report::ReportFormat;

use super::heapwalk::address;
use super::{FileModeArgs, LimitArg, format};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct PerlHeapArgs {
    /// The process or file to read: pid:NUMBER, pid:NAME, NUMBER, core:FILE, or a .pmat file
    #[arg(value_name = "TARGET", value_parser = name::parser())]
    pub(crate) target: String,
    /// The program of the core file, if it is not at its old path any more
    #[arg(long, value_name = "FILE")]
    pub(crate) exe: Option<PathBuf>,
    /// Write a profile of all values to this file; the stack of a value is its path
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show the size of a variable, alone and with everything that it refers to: '$Foo::x',
    /// '%CACHE', '$x->{key}', '&sub my $x', or 'my $x' for a variable of the program's file
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) size: Option<String>,
    /// Show what the value at this address is, and the path that leads to it
    #[arg(long, value_name = "ADDR", value_parser = address, conflicts_with = "size")]
    pub(crate) identify: Option<u64>,
    /// Show everything that refers to the value at this address
    #[arg(long, value_name = "ADDR", value_parser = address,
          conflicts_with_all = ["size", "identify"])]
    pub(crate) who: Option<u64>,
    /// List the reference cycles to which nothing else refers, and the reference that closes each
    /// cycle
    #[arg(long, conflicts_with_all = ["size", "identify", "who"])]
    pub(crate) cycles: bool,
    /// List leaked values: those to which nothing refers, and cycles
    #[arg(long, conflicts_with_all = ["size", "identify", "who", "cycles"])]
    pub(crate) leaked: bool,
    /// Show the memory that the variables of subs keep between calls, by recursion depth
    #[arg(long, conflicts_with_all = ["size", "identify", "who", "cycles", "leaked"])]
    pub(crate) pads: bool,
    /// Show at most BYTES of the text of the value that --size, --identify or --who names
    #[arg(long, value_name = "BYTES", num_args = 0..=1, default_missing_value = "200",
          require_equals = true)]
    pub(crate) contents: Option<u32>,
    /// Replace each hash key with a digest; symbols and variables keep their names
    #[arg(long)]
    pub(crate) anonymize: bool,
    /// Show keys in paths only for hashes with at most this many keys. 0 shows no keys, so that two
    /// profiles do not differ only because a hash grew beyond the limit
    #[arg(long, value_name = "NUMBER", default_value_t = heapprof_perl_values::MAX_NAMED_KEYS)]
    pub(crate) keys: usize,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    /// text, json, csv or markdown
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub(crate) format: ReportFormat,
    /// Unit of sizes: auto, B, KiB, MiB, GiB, TiB, PiB
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
}
