//! Reads heap profiles of other tools. This crate recognizes them by their content and reads them
//! into the model.
//!
//! [`read`] takes any file: pprof's protobuf goes straight to `heapprof-profile`, and everything
//! else is compared with the table in `readers.rs`, or in `binary.rs` if the format is not text.
//! Each format has a module with two functions, `sniff` and `read`, one row in one of these tables,
//! and one variant of [`ProfileFormat`]. The content of a file becomes a `Profile`. The values of a
//! sampler are unsampled: the real values are estimated from them, by the rule of the tool that
//! wrote the file. [`ProfileReading`] names the rule.
//!
//! ```
//! # use heapprof_formats::{FormatReadOptions, ProfileFormat, read};
//! let text = "heap profile:  1:  96 [ 1:  96] @ heapprofile\n  1:  96 [ 1:  96] @ 0x401000\n";
//! let reading = read(text.as_bytes(), &FormatReadOptions::default())?;
//! assert_eq!(reading.format, ProfileFormat::Gperftools);
//! assert_eq!(reading.profile.samples.values(0), [1, 96]);
//! # Ok::<(), heapprof_formats::FormatError>(())
//! ```
#![forbid(unsafe_code)]

mod address_map;
mod binary;
mod bytes;
mod counted_stack;
mod cut_frames;
mod error;
mod event_log;
mod figures;
mod foreign_files;
mod format;
mod go_quoted;
mod go_stacks;
mod heap_line;
mod heap_samples;
mod java_frames;
mod json;
mod lines;
mod mapped_files;
mod memory_budget;
mod open;
#[cfg(test)]
mod profile_text;
mod readers;
mod reading;
mod sampling;
mod spread;
mod stacks;
mod symbol_frame;
mod tally;
mod texts;
mod unpack;
mod utf16;
mod valgrind_frame;
mod writers;

pub use crate::{
    error::FormatError,
    event_log::{EventLog, read_log},
    foreign_files::{SQLITE_DESCRIPTION, SQLITE_MAGIC},
    format::ProfileFormat,
    open::{perl_values, read},
    readers::{formats, sniff},
    reading::{FormatReadOptions, MprofCall, PartSelector, ProfileReading, ValueTypeName},
    writers::{GperftoolsForm, WriteError, write_firefox, write_gperftools, write_speedscope},
};
