//! The allocators inside files that were found, for the comments of profiles. They are added while
//! the program runs, and a dump may interrupt that, so the list has no lock.

use std::iter;
use std::sync::OnceLock;

use heapprof_profile::HookedAllocator;

/// A list of allocators, which only grows.
pub(crate) struct HookedAllocatorList(OnceLock<Box<ListedAllocator>>);

struct ListedAllocator {
    allocator: HookedAllocator,
    /// The list of those that were added later.
    later: HookedAllocatorList,
}

impl HookedAllocatorList {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns the allocators in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HookedAllocator> {
        let all = iter::successors(self.0.get(), |one| one.later.0.get());
        all.map(|one| &one.allocator)
    }

    /// Adds an allocator, unless it is in the list as it is. Returns whether it was added. Two
    /// threads do not add at once.
    pub(crate) fn add(&self, allocator: HookedAllocator) -> bool {
        if self.iter().any(|known| *known == allocator) {
            return false;
        }
        let mut end = self;
        while let Some(one) = end.0.get() {
            end = &one.later;
        }
        let later = Self::new();
        end.0
            .set(Box::new(ListedAllocator { allocator, later }))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_allocator_is_listed_once() {
        let list = HookedAllocatorList::new();
        let allocator = |name: &str| HookedAllocator {
            name: name.to_string(),
            file: "/bin/a".to_string(),
            functions: Ok(6),
        };
        let added = ["jemalloc", "mimalloc", "jemalloc"].map(|name| list.add(allocator(name)));
        assert_eq!(added, [true, true, false]);
        let names: Vec<&str> = list.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["jemalloc", "mimalloc"]);
    }
}
