//! The command line of `heapwalk`.

use std::path::PathBuf;

use clap::Args;
use heapprof_report::ReportFormat;

use super::{FileModeArgs, LimitArg, format};
use crate::name;

#[derive(Debug, Args)]
pub(crate) struct HeapwalkArgs {
    /// The process or core file to read: pid:NUMBER, pid:NAME, NUMBER or core:FILE
    #[arg(value_name = "TARGET", value_parser = name::parser())]
    pub(crate) target: String,
    /// The program of the core file, if it is not at its old path any more
    #[arg(long, value_name = "FILE")]
    pub(crate) exe: Option<PathBuf>,
    /// Write a profile of all blocks to this file. It has the state of each block and, if the
    /// process is recorded, the stack that allocated the block
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show what points to the block at this address, and a path that leads to it
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) who: Option<u64>,
    /// Show the bytes of the block at this address
    #[arg(long, value_name = "ADDR", value_parser = address, conflicts_with = "who")]
    pub(crate) bytes: Option<u64>,
    /// List the blocks and variables that retain the most memory: what would be freed with each
    #[arg(long, conflicts_with_all = ["who", "bytes"])]
    pub(crate) retained: bool,
    /// Show malloc's memory by arena and by list of free blocks, its threshold for mappings, and
    /// how much malloc_trim would give back
    #[arg(long, conflicts_with_all = ["who", "bytes", "retained"])]
    pub(crate) allocator: bool,
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

/// An address in hexadecimal digits.
pub(super) fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "is not an address like 0x55d0c2a3f2a0".to_string())
}
