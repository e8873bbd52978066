//! Text as eyes may see it: without control characters, with names that fit a line.
//!
//! Names come from profiles, files and databases, so they may hold anything. [`printable`] and
//! [`escaping`] make them safe to show; [`shorten`] makes them short enough to read. [`file_name`]
//! has names of files as text, whatever bytes they have.
#![forbid(unsafe_code)]

mod decimal;
mod escape;
pub mod file_name;
mod short_name;

pub use crate::{
    decimal::{decimal, push_whole},
    escape::{ControlReplacement, EscapingWriter, escaping, printable, printable_lines},
    short_name::{MismatchReason, cut, explain_shown_match, shorten, shorten_one, similar_names},
};
