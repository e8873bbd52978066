//! On other machines than x86-64 no process is held, so only core files of x86-64 can be walked.

use std::time::Duration;

use heapprof_memory::Memory;

use crate::error::HeapWalkError;
use crate::image::ProcessImage;

/// A copy, and what it took.
#[derive(Debug)]
pub struct ImageCapture {
    /// The memory.
    pub image: ProcessImage,
    /// How long the process was suspended.
    pub suspended: Duration,
    /// How many bytes were copied.
    pub copied: u64,
    /// The memory as it is now.
    pub memory: LiveMemory,
}

/// The memory of a process, of which nothing can be read here.
#[derive(Debug)]
pub struct LiveMemory;

impl Memory for &LiveMemory {
    fn read(self, _at: u64, _to: &mut [u8]) -> bool {
        false
    }
}

/// Fails.
///
/// # Errors
/// It always does.
pub fn capture(_pid: u32) -> Result<ImageCapture, HeapWalkError> {
    Err(HeapWalkError::OtherMachine)
}
