//! In place of `target.rs` on machines other than x86-64: nobody can be attached to.

use std::convert::Infallible;
use std::time::Duration;

use crate::error::Error;
use crate::wish::{Attached, Wish};

/// A program that can be attached to: there is none on this kind of machine.
#[derive(Debug)]
pub struct Target(Infallible);

impl Target {
    /// Refuses every process.
    ///
    /// # Errors
    /// [`Error::OtherMachine`], always.
    pub fn open(_pid: u32, _library: &[u8]) -> Result<Self, Error> {
        Err(Error::OtherMachine)
    }

    /// Can't be called, because there is no such program.
    ///
    /// # Errors
    /// None.
    pub fn attach(self, _library: &[u8], _wish: Wish) -> Result<Attached, Error> {
        match self.0 {}
    }

    /// Can't be called, because there is no such program.
    ///
    /// # Errors
    /// None.
    pub fn detach(self) -> Result<(u32, Duration), Error> {
        match self.0 {}
    }
}
