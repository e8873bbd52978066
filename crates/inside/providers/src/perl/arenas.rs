//! Reads the content of the arenas of Perl's interpreters, and stores the content of arenas of
//! freed interpreters.

use std::cell::{Cell, UnsafeCell};

use heapprof_engine::ENGINE;
use heapprof_memory::Memory;
use heapprof_perl::{ArenaUsage, FreeLists, PerlRuntime, buffer_of};
use heapprof_platform::sys;

use super::arena_values::ArenaValues;
use super::timed_lock::TurnLock;
use crate::kernel_memory::KernelMemory;

/// Content of the arenas that freed interpreters left behind.
pub(super) struct LeftArenas {
    turn: TurnLock,
    holdings: UnsafeCell<ArenaHoldings>,
}

/// Content of the arenas of some interpreters, and Perl's own count of values.
#[derive(Clone, Copy)]
pub(super) struct ArenaHoldings {
    pub(super) arenas: ArenaUsage,
    pub(super) interpreters: u64,
    /// Number of interpreters that are left out here, because their arenas could not be read.
    pub(super) unread: u64,
    pub(super) values: u64,
    /// Number of bytes that were allocated for the content of values, by
    /// [`SvBufferKind`](heapprof_perl::SvBufferKind); 0 if allocations are sampled.
    pub(super) buffers: [u64; 3],
}

// SAFETY: a thread that reads or writes the arenas has the lock.
unsafe impl Sync for LeftArenas {}

impl LeftArenas {
    pub(super) const fn new() -> Self {
        Self {
            turn: TurnLock::new(),
            holdings: UnsafeCell::new(ArenaHoldings::NONE),
        }
    }

    /// Locks the content of freed interpreters' arenas, and runs `work` with it. Does not run
    /// `work` if another thread keeps the content locked.
    pub(super) fn with(&self, work: impl FnOnce(&mut ArenaHoldings)) {
        // SAFETY: one thread has the lock at a time.
        let _ = self
            .turn
            .with(|| work(unsafe { &mut *self.holdings.get() }));
    }
}

impl ArenaHoldings {
    pub(super) const NONE: Self = Self {
        arenas: ArenaUsage::NONE,
        interpreters: 0,
        unread: 0,
        values: 0,
        buffers: [0; 3],
    };

    pub(super) fn add(&mut self, other: &Self) {
        self.arenas.add(&other.arenas);
        self.interpreters += other.interpreters;
        self.unread += other.unread;
        self.values = self.values.wrapping_add(other.values);
        for (to, from) in self.buffers.iter_mut().zip(other.buffers) {
            *to += from;
        }
    }
}

/// Reads the content of an interpreter's arenas; `None` if they can't be read. System calls read
/// them, because other threads may change them, and the program may have written into free memory.
///
/// If every allocation is recorded, this function also adds up the memory of values outside of
/// arenas, so that reports can account for it.
pub(super) fn read_holdings(perl: &PerlRuntime, at: u64) -> Option<ArenaHoldings> {
    let address = perl.base_of(at);
    let failed = Cell::new(false);
    let memory = KernelMemory { failed: &failed };
    let lists = &mut FreeListCopy::new(memory);
    let arenas = perl.arenas(memory, address, lists)?;
    let values = perl.value_count(memory, address)?;
    let mut buffers = [0; 3];
    if ENGINE.stack_providers().is_exact() {
        perl.each_arena_of_heads(memory, address, |first, count| {
            let values = ArenaValues::read(first, count, |_, _| true);
            for value in values.iter().flat_map(ArenaValues::values) {
                let (of, bytes) = buffer_of(&value.head, &value.body, value.others);
                buffers[of as usize] += bytes;
            }
            Some(())
        })?;
    }
    Some(ArenaHoldings {
        arenas,
        // An interpreter that has freed its arenas left none.
        interpreters: u64::from(arenas.types().next().is_some()),
        unread: 0,
        values,
        buffers,
    })
}

/// A copy of the first word of each item in the arenas, for following free lists. One system call
/// reads a whole arena, whereas following a list in the arenas would take a call for each item. The
/// copy is in a separate mapping, so that it does not use up the memory that is reserved for the
/// profile.
struct FreeListCopy<M> {
    memory: M,
    mapped: MappedWords,
    /// Maximum number of arenas.
    most: usize,
    /// The number of arenas.
    arenas: usize,
    /// Number of copied words, which come after the table of arenas.
    words: usize,
    size: u64,
    is_whole: bool,
}

/// Copy of an arena: its address, its length, and the index at which its copied words begin.
type ArenaCopy = [u64; 3];

/// Maximum number of words that are copied.
const MAX_COPIED_WORDS: usize = 32 << 20;

/// Mapped memory, which is unmapped when this value is dropped.
struct MappedWords {
    at: *mut u64,
    words: usize,
}

impl MappedWords {
    const NONE: Self = Self {
        at: std::ptr::null_mut(),
        words: 0,
    };

    fn new(words: usize) -> Option<Self> {
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let arguments = [0, words * 8, protection, flags, usize::MAX, 0];
        // SAFETY: new memory, which no other code uses.
        let at = unsafe { sys::call(libc::SYS_mmap, arguments) };
        (at > 0).then_some(Self {
            at: at as *mut u64,
            words,
        })
    }

    fn words(&mut self) -> &mut [u64] {
        match self.at.is_null() {
            true => &mut [],
            // SAFETY: `words` words were mapped, and are this value's own.
            false => unsafe { std::slice::from_raw_parts_mut(self.at, self.words) },
        }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        if !self.at.is_null() {
            let arguments = [self.at as usize, self.words * 8, 0, 0, 0, 0];
            // SAFETY: it was mapped, and no code has a part of it.
            unsafe { sys::call(libc::SYS_munmap, arguments) };
        }
    }
}

impl<M: Memory> FreeListCopy<M> {
    fn new(memory: M) -> Self {
        Self {
            memory,
            mapped: MappedWords::NONE,
            most: 0,
            arenas: 0,
            words: 0,
            size: 1,
            is_whole: true,
        }
    }

    /// Returns the table of arenas, and the copies of the first word of each item.
    fn parts(&mut self) -> (&mut [ArenaCopy], &mut [u64]) {
        let (most, arenas) = (self.most, self.arenas);
        let (table, next) = self.mapped.words().split_at_mut(3 * most);
        (&mut table.as_chunks_mut().0[..arenas], next)
    }
}

/// Returns the address of the next item in the free list, after the item at `at`.
fn next_free(
    arenas: &[ArenaCopy],
    next: &[u64],
    size: u64,
    at: u64,
    last: &mut usize,
) -> Option<u64> {
    let holds = |&[address, length, _]: &ArenaCopy| {
        at.checked_sub(address).is_some_and(|from| from < length)
    };
    if !arenas.get(*last).is_some_and(holds) {
        let after = arenas.partition_point(|arena| arena[0] <= at);
        *last = after.checked_sub(1)?;
    }
    let arena = arenas.get(*last).filter(|arena| holds(arena))?;
    let thing = (at - arena[0]) / size;
    next.get((arena[2] + thing) as usize).copied()
}

impl<M: Memory> FreeLists for FreeListCopy<M> {
    fn begin(&mut self, arenas: u64, things: u64) -> bool {
        let words = 3 * arenas as usize + things as usize;
        (self.most, self.arenas, self.words) = (0, 0, 0);
        self.mapped = MappedWords::NONE;
        if words > MAX_COPIED_WORDS {
            return false;
        }
        let Some(mapped) = MappedWords::new(words.max(1)) else {
            return false;
        };
        (self.mapped, self.most, self.is_whole) = (mapped, arenas as usize, true);
        true
    }

    fn arena(&mut self, address: u64, length: u64, size: u64) {
        let mut read = [0; 4096];
        let things = (length / size) as usize;
        let is_read = read
            .get_mut(..length as usize)
            .is_some_and(|read| self.memory.read(address, read));
        let (begin, at) = (self.words, self.arenas);
        self.is_whole &= is_read && at < self.most;
        if !self.is_whole {
            return;
        }
        (self.size, self.arenas, self.words) = (size, at + 1, begin + things);
        let (arenas, next) = self.parts();
        arenas[at] = [address, length, begin as u64];
        let Some(next) = next.get_mut(begin..begin + things) else {
            self.is_whole = false;
            return;
        };
        for (next, thing) in next.iter_mut().zip(read.chunks_exact(size as usize)) {
            *next = thing.first_chunk().map_or(0, |of| u64::from_ne_bytes(*of));
        }
    }

    fn count(&mut self, first: u64, most: u64) -> Option<u64> {
        let (size, is_whole) = (self.size, self.is_whole);
        let (arenas, next) = self.parts();
        arenas.sort_unstable();
        let (mut free, mut at, mut last) = (0, first, 0);
        while at != 0 && is_whole {
            free += 1;
            if free > most {
                return None;
            }
            at = next_free(arenas, next, size, at, &mut last)?;
        }
        is_whole.then_some(free)
    }
}
