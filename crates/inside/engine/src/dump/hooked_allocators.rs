//! The allocators inside files that were found, for the comments of profiles. They are added while
//! the program runs, also by a thread that a fork leaves behind, so the list has no lock.

use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_profile::HookedAllocator;

/// A list of allocators, which only grows.
pub(crate) struct HookedAllocatorList(AtomicPtr<ListedAllocator>);

struct ListedAllocator {
    allocator: HookedAllocator,
    /// The allocator that was added before.
    before: Option<&'static ListedAllocator>,
}

impl HookedAllocatorList {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    fn last(&self) -> Option<&'static ListedAllocator> {
        // SAFETY: what was added is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the allocators, those that were added last first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static HookedAllocator> {
        let all = std::iter::successors(self.last(), |one| one.before);
        all.map(|one| &one.allocator)
    }

    /// Adds an allocator, unless it is in the list as it is. Returns whether it was added. Two
    /// threads do not add at once.
    pub(crate) fn add(&self, allocator: HookedAllocator) -> bool {
        if self.iter().any(|known| *known == allocator) {
            return false;
        }
        let before = self.last();
        let one = Box::leak(Box::new(ListedAllocator { allocator, before }));
        self.0.store(one, Ordering::Release);
        true
    }
}
