//! Reads numbers and texts from bytes in sequence.

use super::PmatError;

/// Length that stands for a missing text.
const NO_TEXT_LENGTH: u64 = u64::MAX;

/// A reader of bytes, with the position of the next byte.
pub(super) struct PmatCursor<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> PmatCursor<'a> {
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.all.len()
    }

    /// Makes an error at the present position.
    pub(super) fn error_here(&self, why: &str) -> PmatError {
        PmatError::Invalid(self.at, why.to_string())
    }

    /// Returns the next bytes. `what` is their name in an error message.
    pub(super) fn bytes(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<&'a [u8], PmatError> {
        let found = self.all[self.at..].get(..count);
        let found = found.ok_or(PmatError::Truncated(self.all.len(), what))?;
        self.at += count;
        Ok(found)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<&'a [u8; N], PmatError> {
        let found = self.all[self.at..].first_chunk();
        let found = found.ok_or(PmatError::Truncated(self.all.len(), what))?;
        self.at += N;
        Ok(found)
    }

    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, PmatError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn word(&mut self, what: &'static str) -> Result<u64, PmatError> {
        Ok(u64::from_le_bytes(*self.array(what)?))
    }

    /// Reads a text; `None` if the text is missing.
    pub(super) fn text(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, PmatError> {
        match self.word(what)? {
            NO_TEXT_LENGTH => Ok(None),
            len => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                self.bytes(len, what).map(Some)
            }
        }
    }

    /// Reads a count of items that follow. Fails if the rest is too short for this many items of
    /// `least` bytes each.
    pub(super) fn count(&mut self, least: usize, what: &'static str) -> Result<usize, PmatError> {
        let count = self.word(what)?;
        self.count_of(count, least, what)
    }

    /// Checks a count of items that follow. Fails if the rest is too short for this many items of
    /// `least` bytes each.
    pub(super) fn count_of(
        &self,
        count: u64,
        least: usize,
        what: &'static str,
    ) -> Result<usize, PmatError> {
        let left = (self.all.len() - self.at) / least;
        let count = usize::try_from(count).ok().filter(|&count| count <= left);
        count.ok_or(PmatError::Truncated(self.all.len(), what))
    }
}
