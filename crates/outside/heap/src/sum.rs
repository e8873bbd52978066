//! Blocks and bytes, summed up.

/// How many blocks, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSum {
    /// Blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl BlockSum {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }
}
