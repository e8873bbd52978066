//! Counts the memory of a profile that is being read, and ends the reading at the limit.

use heapprof_profile::Error as ProfileError;

use crate::error::FormatError;
use crate::reading::FormatReadOptions;

/// Number of bytes that are added between two checks of the limit.
const CHECK_INTERVAL: usize = 256 << 10;

/// The memory that a reader may take for a profile.
pub(crate) struct MemoryBudget {
    /// Maximum number of bytes.
    limit: u64,
    /// Number of bytes that were added since the last check.
    unchecked: usize,
}

impl MemoryBudget {
    /// Makes the budget of a reader with these options.
    pub(crate) fn new(options: &FormatReadOptions) -> Self {
        Self {
            limit: options.max_memory(),
            unchecked: 0,
        }
    }

    /// Counts `added` bytes. `used` computes the bytes of the whole profile, and is called only now
    /// and then. More bytes than the limit are an error.
    pub(crate) fn grow(
        &mut self,
        added: usize,
        used: impl FnOnce() -> u64,
    ) -> Result<(), FormatError> {
        self.unchecked += added;
        if self.unchecked < CHECK_INTERVAL {
            return Ok(());
        }
        self.unchecked = 0;
        let limit = self.limit;
        match used() <= limit {
            true => Ok(()),
            false => Err(ProfileError::TooMuchMemory { limit }.into()),
        }
    }
}
