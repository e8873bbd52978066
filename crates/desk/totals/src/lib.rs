//! Computes the numbers of a heap profile in one place: frames, patterns, filters, flat and cum,
//! the call tree.
//!
//! Reports read these numbers through SQLite (heapprof-analysis), and `heapprof pprof` reads them
//! as pprof does (heapprof-dropin). Nothing in this crate uses a database, prints, or formats a
//! unit.
#![forbid(unsafe_code)]

pub mod call_tree;
pub mod entity;
mod error;
pub mod estimate;
pub mod fetch;
pub mod filter;
pub mod frames;
pub mod import_chain;
pub mod label_filter;
pub mod module;
pub mod neighbours;
pub mod note;
pub mod pattern;
pub mod query;
pub mod same_name;
pub mod totals;
pub mod view;

pub use crate::error::TotalsError;
