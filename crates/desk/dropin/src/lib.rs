//! The command lines of pprof, jeprof and google-pprof: their flags, numbers and output bytes.
//!
//! [`pprof()`], [`jeprof()`] and [`google_pprof()`] run a command line. They read profiles, write
//! reports and print notes through a [`DropinHost`], so this crate does not depend on a database, a
//! terminal or exit codes. This crate repeats mistakes in the output of the original tools.
//! docs/commands/pprof.md lists where heapprof's own commands differ.
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
mod source_text;
mod tool_process;
mod views;

pub use crate::{
    callgrind::callgrind,
    error::DropinError,
    host::{
        CommandProcess, CommandReader, DropinHost, FetchOptions, LineCompleter, ProfileConverter,
        PromptStream, ReportBody, ToolReadOptions, WebPageRequest,
    },
    jeprof::{
        google_pprof_help, help as jeprof_help, run as jeprof, run_google_pprof as google_pprof,
    },
    pprof::{help as pprof_help, run as pprof},
    views::{
        ConfigLink, PPROF_VIEWS, PercentRow, PprofView, PprofViewBody, PprofViewReport, PprofViews,
    },
};
