//! Replaces `live.rs` on machines other than x86-64. Processes can't be suspended there, so only
//! core files of x86-64 can be walked.

use std::time::Duration;

use heapprof_memory::Memory;

use crate::error::HeapWalkError;
use crate::image::ProcessImage;

/// A copy of a process's memory, and the costs of making it.
#[derive(Debug)]
pub struct ImageCapture {
    /// The copy of the process's memory.
    pub image: ProcessImage,
    /// How long the process was suspended.
    pub suspended: Duration,
    /// Number of bytes that were copied.
    pub copied: u64,
    /// The memory of the process as it is now.
    pub memory: LiveMemory,
}

/// The memory of a process, which can't be read on this machine.
#[derive(Debug)]
pub struct LiveMemory;

impl Memory for &LiveMemory {
    fn read(self, _at: u64, _to: &mut [u8]) -> bool {
        false
    }
}

/// Fails: processes can't be read on this machine.
///
/// # Errors
/// Always [`HeapWalkError::OtherMachine`].
pub fn capture(_pid: u32) -> Result<ImageCapture, HeapWalkError> {
    Err(HeapWalkError::OtherMachine)
}

/// Fails: processes can't be read on this machine.
///
/// # Errors
/// Always [`HeapWalkError::OtherMachine`].
pub fn capture_with<T>(
    _pid: u32,
    _observe: impl FnOnce() -> T,
) -> Result<(ImageCapture, T), HeapWalkError> {
    Err(HeapWalkError::OtherMachine)
}
