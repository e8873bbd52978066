//! Writers of formats that other tools read, for `heapprof convert --to`.
//!
//! Values are written with all their digits. Stacks are written as they are, including the frames
//! that the profile's `drop_frames` cuts from reports.

mod addresses;
mod firefox;
mod gperftools;
mod speedscope;

use std::io;

pub use firefox::write_firefox;
pub use gperftools::{GperftoolsForm, write_gperftools};
pub use speedscope::write_speedscope;

/// Reason why a profile could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The writer failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The format can't represent the profile.
    #[error("{0}")]
    Unfit(String),
}

impl From<serde_json::Error> for WriteError {
    fn from(error: serde_json::Error) -> Self {
        // Only writing can fail, because JSON can represent everything here.
        WriteError::Io(error.into())
    }
}
