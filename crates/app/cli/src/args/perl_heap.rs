//! The command line of `perl-heap`.

use std::path::PathBuf;

use clap::Args;
use heapprof_report::ReportFormat;

use super::heapwalk::address;
use super::{FileModeArgs, LimitArg, format};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct PerlHeapArgs {
    /// What to read: pid:NUMBER or pid:NAME (or the number alone), core:FILE, or a .pmat file
    #[arg(value_name = "TARGET", value_parser = name::parser())]
    pub(crate) target: String,
    /// Where the program of a core file is now, if it is elsewhere than it was
    #[arg(long, value_name = "FILE")]
    pub(crate) exe: Option<PathBuf>,
    /// Write a profile of all values to this file, each with its path as its stack
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Say how large a variable is, alone and with all that it leads to: '$Foo::x', '%CACHE',
    /// '$x->{key}', '&sub my $x', 'my $x' of the program's file
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) size: Option<String>,
    /// Say what the value at this address is, and how it is reached
    #[arg(long, value_name = "ADDR", value_parser = address, conflicts_with = "size")]
    pub(crate) identify: Option<u64>,
    /// Say who refers to the value at this address
    #[arg(long, value_name = "ADDR", value_parser = address,
          conflicts_with_all = ["size", "identify"])]
    pub(crate) who: Option<u64>,
    /// List the rings of references that nothing else leads to, and what closes each
    #[arg(long, conflicts_with_all = ["size", "identify", "who"])]
    pub(crate) cycles: bool,
    /// List what has leaked: values to which nothing leads, and rings
    #[arg(long, conflicts_with_all = ["size", "identify", "who", "cycles"])]
    pub(crate) leaked: bool,
    /// Say what the variables of subs keep between calls, by depth of recursion
    #[arg(long, conflicts_with_all = ["size", "identify", "who", "cycles", "leaked"])]
    pub(crate) pads: bool,
    /// Show the text of the value that --size, --identify or --who names, up to so many bytes
    #[arg(long, value_name = "BYTES", num_args = 0..=1, default_missing_value = "200",
          require_equals = true)]
    pub(crate) contents: Option<u32>,
    /// Show a hash of each key of hashes instead of the key; symbols and variables keep their names
    #[arg(long)]
    pub(crate) anonymize: bool,
    /// Name the keys of hashes with at most so many of them in paths; 0 names none, so that a hash
    /// that grows past the number makes no difference of its own
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
