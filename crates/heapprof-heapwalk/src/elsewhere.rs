//! On other machines than x86-64 no process is held, so only core files of x86-64 can be walked.

use std::time::Duration;

use heapprof_memory::Memory;

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
    /// The memory as it is now.
    pub memory: Outside,
}

/// The memory of a process, of which nothing can be read here.
#[derive(Debug)]
pub struct Outside;

impl Memory for &Outside {
    fn read(self, _at: u64, _to: &mut [u8]) -> bool {
        false
    }
}

/// Fails.
///
/// # Errors
/// It always does.
pub fn capture(_pid: u32) -> Result<Capture, Error> {
    Err(Error::OtherMachine)
}
