//! Replaces `target.rs` on machines other than x86-64, where no program can be attached to.

use std::convert::Infallible;

use crate::attach_options::{AttachOptions, AttachOutcome, DetachOutcome};
use crate::error::AttachError;

/// A program that can be attached to: there is none on this kind of machine.
#[derive(Debug)]
pub struct AttachTarget(Infallible);

impl AttachTarget {
    /// Refuses every process.
    ///
    /// # Errors
    /// [`AttachError::OtherMachine`], always.
    pub fn open(_pid: u32, _library: &[u8]) -> Result<Self, AttachError> {
        Err(AttachError::OtherMachine)
    }

    /// Can't be called: no program can be attached to on this machine.
    ///
    /// # Errors
    /// None.
    pub fn attach(
        self,
        _library: &[u8],
        _wish: AttachOptions,
    ) -> Result<AttachOutcome, AttachError> {
        match self.0 {}
    }

    /// Can't be called: no program can be attached to on this machine.
    ///
    /// # Errors
    /// None.
    pub fn detach(self) -> Result<DetachOutcome, AttachError> {
        match self.0 {}
    }
}
