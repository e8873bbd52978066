//! A text of limited size, for the views that are texts.

use std::io::{Error, Result, Write};

/// A text whose size is limited.
pub(super) struct LimitedText {
    pub(super) text: Vec<u8>,
    max_bytes: usize,
}

impl LimitedText {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            text: Vec::new(),
            max_bytes,
        }
    }
}

impl Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.text.len() + bytes.len() > self.max_bytes {
            return Err(Error::other(format!(
                "the answer is larger than {} MiB; filter the functions with f=",
                self.max_bytes >> 20
            )));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
