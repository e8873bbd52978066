//! The program's own mappings that are counted like allocations. A mapping may end piece by piece,
//! because munmap allows that.

use std::collections::BTreeMap;
use std::ops::Range;

use heapprof_abi::StackNumber;

/// A mapping that the program made, or the rest of such a mapping.
#[derive(Clone, Copy)]
struct ProgramMapping {
    end: usize,
    stack: StackNumber,
}

/// The program's own mappings that are counted like allocations, by address.
pub(crate) struct ProgramMappings(BTreeMap<usize, ProgramMapping>);

impl ProgramMappings {
    /// Creates a table without mappings.
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether no mapping is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all mappings.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the mapping of a range. `stack` is the stack that made the mapping.
    pub(crate) fn add(&mut self, range: Range<usize>, stack: StackNumber) {
        let region = ProgramMapping {
            end: range.end,
            stack,
        };
        self.0.insert(range.start, region);
    }

    /// Removes a range from the mappings. Each mapping counts as one object, which ends with the
    /// mapping's last part. `ended` is called for each mapping that is cut. Its arguments are the
    /// mapping's stack, the number of objects that end (-1 if the mapping is cut in two), and the
    /// number of bytes that end.
    pub(crate) fn cut(&mut self, gone: Range<usize>, mut ended: impl FnMut(StackNumber, i64, u64)) {
        let mut before = gone.end;
        while let Some((&start, &region)) = self.0.range(..before).next_back()
            && region.end > gone.start
        {
            before = start;
            self.0.remove(&start);
            let mut left = 0;
            for (start, end) in [
                (start, region.end.min(gone.start)),
                (start.max(gone.end), region.end),
            ] {
                if start < end {
                    left += 1;
                    self.0.insert(start, ProgramMapping { end, ..region });
                }
            }
            let bytes = region.end.min(gone.end) - start.max(gone.start);
            // If a mapping is cut in two, each half counts as an object from then on.
            ended(region.stack, 1 - left, bytes as u64);
        }
    }
}
