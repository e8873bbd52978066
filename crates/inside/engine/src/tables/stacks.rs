//! The table of stacks: finds a stack's number by its hash, and its frames by its number. Each
//! distinct stack is stored once.
//!
//! A stack is stored as an earlier stack (its base) and the frames above it, because most stacks of
//! a program differ only in their newest few frames. A recursive parser's 60 frames take 100 bytes
//! instead of 500.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heapprof_abi::stack_end::OUTERMOST;
use heapprof_abi::{FrameWord, MappingGeneration, StackNumber, ThreadNumber};
use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::sys;
use heapprof_platform::table_file::TableLifetime;

use crate::process::EngineProcess;
use crate::tables::chunks::ChunkedArray;
use crate::tables::probe_table::ProbeTable;
use crate::tables::word_memory::WordMemory;

pub(crate) mod stack_reader;

/// The stacks of a process.
pub(crate) struct ProcessStacks {
    by_hash: ProbeTable<{ rank::STACKS }>,
    /// Pointer to each stack's entry, by the stack's number.
    pub(crate) entry: ChunkedArray<*const StackEntry>,
    pub(crate) len: AtomicU32,
    /// Upper bound of the number of distinct locations. A new stack adds the number of its own
    /// frames, or of all its frames if its base belongs to another generation.
    frames: AtomicUsize,
    memory: LockedValue<{ rank::STACK_MEMORY }, WordMemory>,
}

// SAFETY: frames are written once, before their stack's number is published.
unsafe impl Sync for ProcessStacks {}

/// The entry of a stack. Behind the entry are the stack's own frames, newest first.
#[repr(C)]
pub(crate) struct StackEntry {
    pub(crate) generation: MappingGeneration,
    /// Number of the stack's frames.
    pub(crate) frames: u16,
    /// Number of the stack's oldest frames that are stored in `base`.
    pub(crate) from_base: u16,
    /// Number of the base. It is lower than the stack's own number.
    pub(crate) base: StackNumber,
    /// Reason why the stack has no older frame, one of [`heapprof_abi::stack_end`].
    end: u32,
}

/// Size of a [`StackEntry`] in words.
const ENTRY_WORDS: usize = size_of::<StackEntry>() / 8;

impl StackEntry {
    /// Returns the stack's own frames, newest first.
    fn own(&self) -> &[u64] {
        let own = usize::from(self.frames - self.from_base);
        // SAFETY: an entry is made with its own frames behind it.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).add(1).cast(), own) }
    }
}

/// A stack that may be new: its frames, and a numbered stack whose oldest frames it shares.
pub(crate) struct NewStack<'a> {
    base: Option<(StackNumber, usize)>,
    /// Number of the stack's oldest frames that are missing in `frames`, because they are known to
    /// be in the base.
    lacks: usize,
    frames: &'a [u64],
    newest_first: bool,
    /// Reason why the stack has no older frame, one of [`heapprof_abi::stack_end`].
    end: u32,
}

impl<'a> NewStack<'a> {
    /// Creates a stack without a base. The newest frame comes first.
    pub(crate) fn new(frames: &'a [u64]) -> Self {
        Self {
            base: None,
            lacks: 0,
            frames,
            newest_first: true,
            end: OUTERMOST,
        }
    }

    /// Creates a stack that shares some of its oldest frames with a numbered stack. `base` has that
    /// stack's number, and the number of shared frames. The oldest frame comes first.
    pub(crate) fn based_on(base: Option<(StackNumber, usize)>, frames: &'a [u64]) -> Self {
        Self {
            base: base.filter(|&(_, shared)| shared != 0),
            lacks: 0,
            frames,
            newest_first: false,
            end: OUTERMOST,
        }
    }

    /// Returns the stack with the reason why it has no older frame, one of
    /// [`heapprof_abi::stack_end`].
    pub(crate) fn with_end(self, end: u32) -> Self {
        Self { end, ..self }
    }
}

/// Returns the key of a thread's stack, which serves as its hash. Each stack of a thread has a
/// different key.
fn thread_stack_hash(stack: StackNumber, thread: ThreadNumber) -> u64 {
    let mut x = u64::from(thread.to_u32()) << 32 | u64::from(stack.to_u32());
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 32;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 29).max(2)
}

impl ProcessStacks {
    pub(crate) const fn new() -> Self {
        Self {
            by_hash: ProbeTable::new(),
            entry: ChunkedArray::new(),
            len: AtomicU32::new(0),
            frames: AtomicUsize::new(0),
            memory: LockedValue::new(WordMemory::new()),
        }
    }

    /// Returns the number of the stack with this hash, if the table has it.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<StackNumber> {
        let number = self.by_hash.find(hash);
        number.map(|number| StackNumber::from_u32(number as u32))
    }

    /// Prefetches the table's entry for a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.by_hash.prefetch(hash);
    }

    /// Returns the number of a stack, and adds the stack if it is new; `None` if there is no
    /// memory.
    pub(crate) fn find_or_insert(
        &self,
        process: &EngineProcess,
        hash: u64,
        generation: MappingGeneration,
        stack: NewStack<'_>,
    ) -> Option<StackNumber> {
        let number = self.by_hash.find_or_insert(process, hash, || {
            let number = self.len.load(Ordering::Relaxed);
            let place = self
                .entry
                .touch(number as usize, &process.pages, TableLifetime::Lasting);
            if place.is_null() || number == u32::MAX {
                return None;
            }
            let (base, shared) = self.nearest(stack.base);
            let all = stack.lacks + stack.frames.len();
            let own = all - shared;
            let take = |memory: &mut WordMemory| memory.take(ENTRY_WORDS + own, &process.pages);
            let at = self.memory.with(process, take)?;
            // SAFETY: `at` has room for the entry and its frames; `place` is mapped and no thread
            // reads it yet.
            unsafe {
                at.cast::<StackEntry>().write(StackEntry {
                    generation,
                    frames: u16::try_from(all).ok()?,
                    from_base: u16::try_from(shared).ok()?,
                    base,
                    end: stack.end,
                });
                let to = std::slice::from_raw_parts_mut(at.add(ENTRY_WORDS), own);
                if stack.newest_first {
                    to.copy_from_slice(stack.frames);
                } else {
                    let frames = stack.frames[shared - stack.lacks..].iter().rev();
                    to.iter_mut().zip(frames).for_each(|(to, &pc)| *to = pc);
                }
                *place = at.cast();
            }
            let same = shared != 0 && self.entry(base).generation == generation;
            let new = if same { own } else { all };
            self.frames.fetch_add(new, Ordering::Relaxed);
            self.len.store(number + 1, Ordering::Release);
            process.pages.copy(&self.len);
            Some(u64::from(number))
        });
        number.map(|number| StackNumber::from_u32(number as u32))
    }

    /// Returns the number of a thread's version of `stack`: it has all frames of `stack`, and the
    /// thread's word. `is_new` is called if the table did not have it. Returns `None` if there is
    /// no memory.
    pub(crate) fn find_or_insert_for_thread(
        &self,
        process: &EngineProcess,
        stack: StackNumber,
        thread: ThreadNumber,
        is_new: impl FnOnce(),
    ) -> Option<StackNumber> {
        let hash = thread_stack_hash(stack, thread);
        if let found @ Some(_) = self.find(hash) {
            return found;
        }
        is_new();
        let plain = self.entry(stack);
        let frames = usize::from(plain.frames);
        let of_thread = NewStack {
            base: Some((stack, frames)).filter(|_| frames != 0),
            lacks: frames,
            frames: &[FrameWord::Thread(thread).to_word()],
            newest_first: false,
            end: plain.end,
        };
        self.find_or_insert(process, hash, plain.generation, of_thread)
    }

    /// Returns the best base for a new stack: among the stacks that have the shared frames, the
    /// stack that stores some of these frames itself. So every step from a stack to its base leads
    /// nearer to the root, and reading a stack takes at most one step for each frame.
    fn nearest(&self, base: Option<(StackNumber, usize)>) -> (StackNumber, usize) {
        let Some((mut number, shared)) = base else {
            return (StackNumber::from_u32(0), 0);
        };
        loop {
            let entry = self.entry(number);
            if usize::from(entry.from_base) < shared {
                return (number, shared);
            }
            number = entry.base;
        }
    }

    /// Returns the number of stacks.
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the numbers of all stacks.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = StackNumber> + use<> {
        (0..self.len()).map(StackNumber::from_u32)
    }

    /// Whether there is a stack with this number.
    pub(crate) fn contains(&self, number: StackNumber) -> bool {
        number.to_u32() < self.len()
    }

    /// Returns an upper bound of the number of distinct frames of all stacks. A frame counts once
    /// for each generation.
    pub(crate) fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    fn entry(&self, number: StackNumber) -> &StackEntry {
        // SAFETY: numbers below `len` have a published, immutable entry.
        unsafe { &**self.entry.get(number.to_index()) }
    }

    /// Returns the reason why a stack has no older frame, one of [`heapprof_abi::stack_end`].
    pub(crate) fn end(&self, number: StackNumber) -> u32 {
        self.entry(number).end
    }

    /// Puts a stack's return addresses into `frames`, leaf first. Returns its generation of
    /// mappings.
    pub(crate) fn read(&self, number: StackNumber, frames: &mut Vec<u64>) -> MappingGeneration {
        frames.clear();
        let (mut entry, mut wanted) = (self.entry(number), usize::MAX);
        let generation = entry.generation;
        loop {
            let newer = usize::from(entry.frames).saturating_sub(wanted);
            frames.extend(&entry.own()[newer..]);
            wanted = entry.from_base.into();
            if wanted == 0 {
                return generation;
            }
            entry = self.entry(entry.base);
        }
    }

    /// Puts a stack's return addresses into an array, as far as there is room, in the order of
    /// [`read`](Self::read). Returns the number of frames that were put.
    pub(crate) fn read_into(&self, number: StackNumber, frames: &mut [u64]) -> usize {
        let (mut entry, mut wanted, mut n) = (self.entry(number), usize::MAX, 0);
        loop {
            let newer = usize::from(entry.frames).saturating_sub(wanted);
            let own = &entry.own()[newer..];
            let own = &own[..own.len().min(frames.len() - n)];
            frames[n..n + own.len()].copy_from_slice(own);
            n += own.len();
            wanted = entry.from_base.into();
            if wanted == 0 {
                return n;
            }
            entry = self.entry(entry.base);
        }
    }

    /// Returns how many bytes of the tables are in memory.
    pub(crate) fn resident(&self, process: &EngineProcess) -> usize {
        // A dump may be made while an event is interrupted with the lock.
        let known = self.memory.with_in_time(process, |memory| memory.extent());
        let (mapped, left, rest) = known.unwrap_or((0, 0, std::ptr::null()));
        // The unused rest of a large page is in memory, too.
        let unused = process
            .pages
            .resident(rest, left)
            .saturating_sub(sys::PAGE_SIZE);
        let frames = mapped - left + unused;
        self.by_hash.resident(process) + self.entry.resident(&process.pages) + frames
    }

    /// Returns the locks that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 2] {
        let Self {
            by_hash,
            entry: _,
            len: _,
            frames: _,
            memory,
        } = self;
        [&by_hash.lock, &memory.lock]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_platform::pages::regions::region;

    /// Tests that a thread's stack has the frames and the generation of the stack that all threads
    /// share, and always gets the same number.
    #[test]
    fn a_thread_has_one_number_for_each_stack() {
        let (process, stacks) = (EngineProcess::new(region()), ProcessStacks::new());
        let (first, fourth) = (MappingGeneration::FIRST, MappingGeneration::from_u32(3));
        let shared = stacks.find_or_insert(&process, 70, fourth, NewStack::new(&[9, 8, 7]));
        let longer = NewStack::based_on(shared.map(|shared| (shared, 2)), &[7, 8, 5, 4]);
        let longer = stacks.find_or_insert(&process, 71, fourth, longer);
        let empty = stacks.find_or_insert(&process, 72, first, NewStack::new(&[]));
        let mut words = Vec::new();
        for (stack, frames, generation) in [
            (shared, &[9, 8, 7][..], fourth),
            (longer, &[4, 5, 8, 7], fourth),
            (empty, &[], first),
        ] {
            let stack = stack.unwrap();
            let mut new = 0;
            let mut number = |thread| {
                let is_new = || new += 1;
                stacks
                    .find_or_insert_for_thread(&process, stack, thread, is_new)
                    .unwrap()
            };
            let threads = [1, u32::MAX].map(ThreadNumber::from_u32);
            let [first, second] = threads.map(&mut number);
            assert_eq!(threads.map(&mut number), [first, second]);
            assert_eq!(new, 2);
            for (own, thread) in [first, second].into_iter().zip(threads) {
                assert_eq!(stacks.read(own, &mut words), generation);
                assert_eq!(words[0], FrameWord::Thread(thread).to_word());
                assert_eq!(&words[1..], frames);
            }
        }
    }
}
