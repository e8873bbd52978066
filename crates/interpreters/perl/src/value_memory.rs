//! Finds the memory that belongs to each value of an interpreter: parts of arenas, and blocks of
//! malloc. So a written page can be attributed to values.
//!
//! A hash key is one block, which all hashes with the key share. It begins with an entry of the
//! hash of all keys (`PL_strtab`), which counts the uses of the key. The layout is that of Perl's
//! hv.h (`struct shared_he`).

use core::ops::Range;

use heapprof_memory::Memory;

use crate::arenas::{ARENA_SIZE, ArenaType, each_head_arena};
use crate::interpreter::PerlRuntime;
use crate::values::{HEAD_BYTES, SvHead, arena_body, buffer_address};

/// Maximum number of buckets that are read. Memory may change meanwhile, so a loop could be endless
/// without a limit.
const MAX_BUCKETS: u64 = 1 << 26;
/// Maximum number of keys that are read.
const MAX_KEYS: u64 = 1 << 26;
/// Maximum number of values that are read.
const MAX_VALUES: usize = 1 << 27;
/// Maximum number of buckets that are read in one step.
const MAX_BUCKETS_PER_READ: usize = 64;

/// The memory that belongs to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerlValueMemory {
    /// The value's head, in an arena.
    pub head: Range<u64>,
    /// The value's body, in an arena; empty if it has none.
    pub body: Range<u64>,
    /// An address in the block with the value's text, elements or buckets.
    pub in_buffer: Option<u64>,
}

impl PerlRuntime {
    /// Calls `each` with the memory of every value of an interpreter. Returns `None` if the values
    /// can't be read. In this case, `each` may already have been called for some values.
    pub fn each_value<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        mut each: impl FnMut(PerlValueMemory),
    ) -> Option<()> {
        let mut read = [0; ARENA_SIZE];
        let mut left = MAX_VALUES;
        let newest = interpreter.wrapping_add(self.variable.arenas?.sv_arenaroot);
        each_head_arena(memory, memory.u64(newest)?, |first, count| {
            left = left.checked_sub(count)?;
            let heads = read.get_mut(..count * HEAD_BYTES)?;
            if !memory.read(first, heads) {
                return None;
            }
            let places = (0..).map(|i| first + i * HEAD_BYTES as u64);
            for (at, bytes) in places.zip(heads.as_chunks::<HEAD_BYTES>().0) {
                let head = SvHead::new(bytes);
                if head.is_free() {
                    continue;
                }
                let body = match (arena_body(&head), self.body_size_of(&head)) {
                    (Some(body), size @ 1..) => body..body.saturating_add(size),
                    _ => 0..0,
                };
                each(PerlValueMemory {
                    head: at..at + HEAD_BYTES as u64,
                    body,
                    in_buffer: buffer_address(&head),
                });
            }
            Some(())
        })
    }

    /// Calls `each` with an address in every arena of an interpreter, and the arena's type. Returns
    /// `None` if the arenas can't be read, or as soon as `each` returns `None`.
    pub fn each_arena<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        mut each: impl FnMut(u64, ArenaType) -> Option<()>,
    ) -> Option<()> {
        self.each_arena_of_heads(memory, interpreter, |first, _| {
            each(first, ArenaType::Heads)
        })?;
        self.each_other_arena(memory, interpreter, each)
    }

    /// Calls `each` with the address of every key that hashes share. Returns `None` if the keys
    /// can't be read, or as soon as `each` returns `None`. In this case, `each` may already have
    /// been called for some keys.
    pub fn each_key<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        mut each: impl FnMut(u64) -> Option<()>,
    ) -> Option<()> {
        let layout = &self.layout;
        let word = |at: u64, offset: u32| memory.u64(at.wrapping_add(offset.into()));
        let all = memory.u64(interpreter.wrapping_add(self.variable.strtab?))?;
        let (body, buckets) = (word(all, layout.sv_any)?, word(all, layout.sv_u)?);
        let count = word(body, layout.hv_max)?.checked_add(1)?;
        if count > MAX_BUCKETS {
            return None;
        }
        let mut bytes = [0; 8 * MAX_BUCKETS_PER_READ];
        let (mut done, mut left) = (0, MAX_KEYS);
        while done < count {
            let now = (count - done).min(MAX_BUCKETS_PER_READ as u64) as usize;
            let read = bytes.get_mut(..8 * now)?;
            if !memory.read(buckets.wrapping_add(8 * done), read) {
                return None;
            }
            for bucket in read.as_chunks::<8>().0 {
                let mut entry = u64::from_ne_bytes(*bucket);
                while entry != 0 {
                    left = left.checked_sub(1)?;
                    each(entry)?;
                    entry = memory.u64(entry)?;
                }
            }
            done += now as u64;
        }
        Some(())
    }
}
