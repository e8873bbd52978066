//! On other machines than x86-64 no process is held, so only core files of x86-64 can be walked.

use std::time::Duration;

use crate::error::Error;
use crate::image::Image;

/// A copy, and what it took.
#[derive(Debug)]
pub struct Capture {
    /// The memory.
    pub image: Image,
    /// How long the process was held.
    pub held: Duration,
    /// How many bytes were copied.
    pub copied: u64,
}

/// Fails.
///
/// # Errors
/// It always does.
pub fn capture(_pid: u32) -> Result<Capture, Error> {
    Err(Error::OtherMachine)
}
