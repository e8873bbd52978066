//! What the arenas of Perl's interpreters hold, of those that are there and of those that left
//! theirs.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_memory::Memory;
use heapprof_perl::{Arenas, Context, FreeLists, Perl};

/// The arenas that freed interpreters left.
pub(super) struct LeftArenas {
    is_held: AtomicBool,
    held: UnsafeCell<Held>,
}

/// What the arenas of some interpreters hold, and how many values they say that they have.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) arenas: Arenas,
    pub(super) interpreters: u64,
    pub(super) values: u64,
}

// SAFETY: whoever reads or writes the arenas holds them.
unsafe impl Sync for LeftArenas {}

impl LeftArenas {
    pub(super) const fn new() -> Self {
        Self {
            is_held: AtomicBool::new(false),
            held: UnsafeCell::new(Held::NONE),
        }
    }

    /// Does `work` with them, unless another thread does something with them.
    pub(super) fn with(&self, work: impl FnOnce(&mut Held)) {
        if !self.is_held.swap(true, Ordering::Acquire) {
            // SAFETY: this thread alone holds them.
            work(unsafe { &mut *self.held.get() });
            self.is_held.store(false, Ordering::Release);
        }
    }
}

impl Held {
    pub(super) const NONE: Self = Self {
        arenas: Arenas::NONE,
        interpreters: 0,
        values: 0,
    };

    pub(super) fn add(&mut self, other: &Self) {
        self.arenas.add(&other.arenas);
        self.interpreters += other.interpreters;
        self.values = self.values.wrapping_add(other.values);
    }
}

/// What the arenas of an interpreter hold; `None` if they can't be read.
pub(super) fn held_by<M: Memory>(
    perl: &Perl,
    memory: M,
    at: u64,
    lists: &mut impl FreeLists,
) -> Option<Held> {
    let address = match perl.context {
        Context::Variables => 0,
        _ => at,
    };
    Some(Held {
        arenas: perl.arenas(memory, address, lists)?,
        interpreters: 1,
        values: perl.value_count(memory, address)?,
    })
}

/// Free lists, followed in a copy of what lies at the beginning of each thing. The kernel reads an
/// arena at once, where it would have to read thing by thing along a list.
pub(super) struct Copied<M> {
    memory: M,
    /// Each arena's address and length, and where its copy begins.
    arenas: Vec<(u64, u64, usize)>,
    next: Vec<u64>,
    size: u64,
    is_whole: bool,
}

impl<M: Memory> Copied<M> {
    pub(super) fn new(memory: M) -> Self {
        Self {
            memory,
            arenas: Vec::new(),
            next: Vec::new(),
            size: 1,
            is_whole: true,
        }
    }

    /// What follows the thing at `at`.
    fn after(&self, at: u64, last: &mut usize) -> Option<u64> {
        let holds = |&(address, length, _): &(u64, u64, usize)| {
            at.checked_sub(address).is_some_and(|from| from < length)
        };
        if !self.arenas.get(*last).is_some_and(holds) {
            let after = self.arenas.partition_point(|arena| arena.0 <= at);
            *last = after.checked_sub(1)?;
        }
        let arena = self.arenas.get(*last).filter(|arena| holds(arena))?;
        let thing = ((at - arena.0) / self.size) as usize;
        self.next.get(arena.2 + thing).copied()
    }
}

impl<M: Memory> FreeLists for Copied<M> {
    fn arena(&mut self, address: u64, length: u64, size: u64) {
        let mut read = [0; 4096];
        let things = (length / size) as usize;
        let is_read = read
            .get_mut(..length as usize)
            .is_some_and(|read| self.memory.read(address, read));
        let has_room = self.arenas.try_reserve(1).is_ok() && self.next.try_reserve(things).is_ok();
        self.is_whole &= is_read && has_room;
        if !self.is_whole {
            return;
        }
        self.size = size;
        self.arenas.push((address, length, self.next.len()));
        let each = read.chunks_exact(size as usize).take(things);
        self.next.extend(each.filter_map(|thing| {
            let next = thing.first_chunk()?;
            Some(u64::from_ne_bytes(*next))
        }));
    }

    fn count(&mut self, first: u64, most: u64) -> Option<u64> {
        self.arenas.sort_unstable();
        let (mut free, mut at, mut last) = (0, first, 0);
        while at != 0 && self.is_whole {
            free += 1;
            if free > most {
                return None;
            }
            at = self.after(at, &mut last)?;
        }
        self.arenas.clear();
        self.next.clear();
        self.is_whole.then_some(free)
    }
}
