//! The stacks of pools. A pool is memory from which an interpreter takes values for many lines.

use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_abi::StackNumber;

/// Maximum number of stacks of pools. There are few, because the stack of a pool has no callers.
const MAX_POOL_STACKS: usize = 64;

/// The stacks of pools in a recording.
pub(crate) struct PoolStacks {
    /// Entries of the table: the provider's number, and the stack's number plus one; 0 for an empty
    /// entry.
    known: [AtomicU64; MAX_POOL_STACKS],
}

impl PoolStacks {
    /// Makes a table without pools.
    pub(crate) const fn new() -> Self {
        Self {
            known: [const { AtomicU64::new(0) }; MAX_POOL_STACKS],
        }
    }

    /// Notes that a stack belongs to one of the provider's pools. If the table is full, the stack
    /// stays unchanged in profiles.
    #[cold]
    pub(crate) fn note(&self, provider: usize, stack: StackNumber) {
        let wanted = ((provider as u64) << 32 | u64::from(stack.to_u32())) + 1;
        for place in &self.known {
            let found = place.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire);
            if found.is_ok() || found == Err(wanted) {
                return;
            }
        }
    }

    /// Returns the pools of a provider, by the numbers of their stacks.
    pub(crate) fn provider_pools(&self, provider: usize) -> impl Iterator<Item = StackNumber> {
        let known = self.known.iter().map(|place| place.load(Ordering::Acquire));
        let numbers = known.take_while(|&known| known != 0).map(|known| known - 1);
        numbers
            .filter(move |known| known >> 32 == provider as u64)
            .map(|known| StackNumber::from_u32(known as u32))
    }

    /// Removes all pools, for another recording.
    pub(crate) fn clear(&self) {
        for place in &self.known {
            place.store(0, Ordering::Release);
        }
    }
}
