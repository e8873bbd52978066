//! The command lines of pprof and jeprof: their flags, numbers and output bytes.
//!
//! [`pprof()`] and [`jeprof()`] run a command line. They read profiles, write reports and print
//! notes through a [`DropinHost`], so this crate knows no database, no terminal and no exit code.
//! Mistakes in the output of the originals are repeated here; docs/commands/pprof.md says where
//! heapprof's own commands differ.
#![forbid(unsafe_code)]

mod callgrind;
mod error;
pub mod graph;
mod host;
pub mod jeprof;
mod kind;
mod name_numbers;
mod pprof;
pub mod report;
pub mod reshape;

pub use crate::{
    callgrind::callgrind,
    error::DropinError,
    host::{
        DropinHost, FetchOptions, ProfileConverter, ReportBody, ToolReadOptions, WebPageRequest,
    },
    jeprof::{help as jeprof_help, run as jeprof},
    pprof::{help as pprof_help, run as pprof},
};
