//! A sum of blocks and their bytes.

/// A number of blocks, and the number of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSum {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of all blocks in the sum.
    pub bytes: u64,
}

impl BlockSum {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }
}
