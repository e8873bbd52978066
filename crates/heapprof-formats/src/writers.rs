//! Forms that other tools read: for `heapprof convert --to`.
//!
//! Values are written with all their digits, and stacks as they are: what the profile's
//! `drop_frames` cuts from reports is there.

mod addresses;
mod firefox;
mod gperftools;
mod speedscope;

use std::io;

pub use firefox::write_firefox;
pub use gperftools::{GperftoolsForm, write_gperftools};
pub use speedscope::write_speedscope;

/// Why a profile could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The writer failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The form has no place for what the profile holds.
    #[error("{0}")]
    Unfit(String),
}

impl From<serde_json::Error> for WriteError {
    fn from(error: serde_json::Error) -> Self {
        // Only writing can fail: there is nothing that JSON could not say.
        WriteError::Io(error.into())
    }
}
