//! pprof's and jeprof's command lines: their flags, their numbers and their bytes.
//!
//! [`pprof()`] and [`jeprof()`] do what a command line says. They read profiles, write reports and
//! say things through a [`DropinHost`], so that nothing here knows a database, a terminal or an
//! exit code. What they print wrong is printed so here too; docs/commands/pprof.md says where
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
