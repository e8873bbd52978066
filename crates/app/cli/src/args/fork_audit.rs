//! The command line of `fork-audit`.

use std::ffi::OsString;

use clap::Args;

use super::record::YesOrNo;
use super::{FileModeArgs, LimitArg, ReportArgs};

#[derive(Debug, Args)]
pub(crate) struct ForkAuditArgs {
    /// What record --fork-audit left: a folder, or profiles
    #[arg(value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) profiles: Vec<String>,
    /// Exit with 1 when this rule breaks, such as 'loaded > 0' or 'copied > 20MiB'; may be
    /// repeated
    #[arg(long, value_name = "RULE")]
    pub(crate) fail_if: Vec<String>,
    /// With CMD: sample allocations instead of recording all of them, which takes less memory in
    /// each child; what is said of allocations is then an estimate
    #[arg(long, value_name = "SIZE", value_parser = super::record::period, requires = "command")]
    pub(crate) period: Option<u64>,
    /// With CMD: whether Python's small objects are recorded, which are most of what its children
    /// copy [default: yes with --period]
    #[arg(long, value_enum, value_name = "WHETHER", requires = "command")]
    pub(crate) python_objects: Option<YesOrNo>,
    /// With CMD: build Devel::HeapProf for the perl that runs, if it is missing
    #[arg(long, requires = "command")]
    pub(crate) perl_install: bool,
    #[command(flatten)]
    pub(crate) limit: LimitArg,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// Run this program, audit its forked children, and report when it has ended; then -o is the
    /// folder of the profiles
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
