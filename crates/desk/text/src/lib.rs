//! Makes text fit to be shown: without control characters, and with names that fit a line.
//!
//! Names come from profiles, files and databases, so they may contain anything. [`printable`] and
//! [`escaping`] make them safe to show; [`shorten`] makes them short enough to read. [`file_name`]
//! encodes file names of any bytes as text.
#![forbid(unsafe_code)]

mod decimal;
mod escape;
pub mod file_name;
mod name_pattern;
mod short_name;
mod words;

pub use crate::{
    decimal::{decimal, push_whole},
    escape::{ControlReplacement, EscapingWriter, escaping, printable, printable_lines},
    name_pattern::{name_pattern, pattern_name},
    short_name::{MismatchReason, cut, explain_shown_match, shorten, shorten_one, similar_names},
    words::fold_words,
};
