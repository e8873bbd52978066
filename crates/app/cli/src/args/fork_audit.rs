//! The command line of `fork-audit`.

use std::ffi::OsString;

use clap::Args;

use super::record::YesOrNo;
use super::{FileModeArgs, LimitArg, ReportArgs};

#[derive(Debug, Args)]
pub(crate) struct ForkAuditArgs {
    /// The folder or the profiles that record --fork-audit wrote
    #[arg(value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) profiles: Vec<String>,
    /// Exit with 1 if this condition is true, such as 'loaded > 0' or 'copied > 20MiB'; may be
    /// repeated
    #[arg(long, value_name = "RULE")]
    pub(crate) fail_if: Vec<String>,
    /// With CMD: sample allocations instead of recording all of them. This takes less memory in
    /// each child, but values of allocations are then estimates
    #[arg(long, value_name = "SIZE", value_parser = super::record::period, requires = "command")]
    pub(crate) period: Option<u64>,
    /// With CMD: whether to record Python's small objects, which are most of the memory that
    /// children of a Python program copy [default: yes with --period]
    #[arg(long, value_enum, value_name = "WHETHER", requires = "command")]
    pub(crate) python_objects: Option<YesOrNo>,
    /// With CMD: build Devel::HeapProf for the perl in use, if the module is missing
    #[arg(long, requires = "command")]
    pub(crate) perl_install: bool,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// Run this program, audit its forked children, and report when the program has ended. With
    /// CMD, -o is the folder of the profiles
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
