//! A list of a thread's recent stacks with their numbers. It is for loops that allocate on several
//! stacks in turn.
//!
//! Sorting a table, for example, allocates on two stacks in turn, and
//! [`LastStack`](crate::stack::capture::LastStack) has only one stack. A comparison of known frames
//! with memory needs no unwinding, no hash and no search in the table of stacks.

use heapprof_abi::{MappingGeneration, StackNumber};

use crate::stack::call_site::CallSite;

/// Number of stacks in the list, one for each call site that allocates.
const WAY_COUNT: usize = 8;
/// Maximum number of frames of a stack in the list.
const MAX_FRAMES: usize = 64;
/// Maximum number of words, besides return addresses, on which a stack in the list may depend.
const MAX_CHECKS: usize = 16;
/// Number of stacks that may be added for each stack that is found. To add a stack takes a quarter
/// of the time that is saved when a stack is found.
const CREDIT_PER_HIT: u32 = 4;
const MAX_CREDIT: u32 = 256;
/// Number of captures without a search, when all credit is spent. After them, a few captures search
/// again, so that a new loop is noticed.
const PAUSE_CAPTURES: u32 = 992;
/// Number of stacks that may be added after a pause.
const TRIAL_CAPTURES: u32 = 32;

/// The recent stacks of a thread. All zeros are an empty list.
pub(crate) struct RecentStacks {
    /// The call site of each stack, as a word; zero for an empty entry. All entries are in one
    /// cache line.
    place: [u64; WAY_COUNT],
    way: [RecentStack; WAY_COUNT],
    /// Number of entries that stacks from new call sites have taken so far. It determines the entry
    /// that the next such stack takes.
    next: u32,
    /// Number of stacks that may still be added before the next pause. Because of this limit, the
    /// list costs little in a program that never returns to a stack in it.
    credit: u32,
    /// Number of further captures without a search in this list.
    pause: u32,
}

/// A word that a walk read.
#[derive(Clone, Copy)]
pub(crate) struct WalkedWord {
    pub(crate) at: usize,
    pub(crate) expected: usize,
}

struct RecentStack {
    stack: StackNumber,
    age: NumberAge,
    len: u32,
    checks: u32,
    /// The value of rbp at the call, if the stack depends on it.
    bp: Option<usize>,
    /// Return addresses, newest first, each with its address on the stack.
    frame: [WalkedWord; MAX_FRAMES],
    check: [WalkedWord; MAX_CHECKS],
}

/// The age of a stack's number: the generation of mappings, and the number of unloads of code, at
/// the time when the stack got its number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumberAge {
    pub(crate) generation: MappingGeneration,
    pub(crate) unloads: u32,
}

/// A stack that was walked and numbered, oldest frame first.
pub(crate) struct WalkedStack<'a> {
    pub(crate) slots: &'a [usize],
    pub(crate) pcs: &'a [u64],
    pub(crate) bp: Option<usize>,
}

/// Whether any of `words` has changed in memory.
///
/// # Safety
/// All the words can be read.
#[inline(always)]
unsafe fn differ(words: &[WalkedWord]) -> bool {
    let changed = |word: &WalkedWord| {
        // SAFETY: the caller's promise.
        unsafe { (word.at as *const usize).read() ^ word.expected }
    };
    let (by_4, rest) = words.as_chunks::<4>();
    // If any words differ, it is mostly those of new frames.
    by_4.iter()
        .any(|words| words.iter().fold(0, |any, word| any | changed(word)) != 0)
        || rest.iter().fold(0, |any, word| any | changed(word)) != 0
}

/// Combines a return address and its address on the stack into a word that is not zero. Two call
/// sites may have the same word.
#[inline(always)]
fn place_word(slot: usize, pc: usize) -> u64 {
    (slot as u64 ^ (pc as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1
}

impl RecentStack {
    /// Whether the stack at `frame` equals this stack.
    #[inline(always)]
    fn is_stack_at(&self, frame: CallSite, pc: usize, age: NumberAge) -> bool {
        let newest = self.frame[0];
        newest.at == frame.slot
            && newest.expected == pc
            && self.bp.is_none_or(|bp| bp == frame.bp)
            && self.age == age
            // SAFETY: the words lie between the frame, which is where it was, and the end of this
            // thread's stack.
            && !unsafe {
                differ(&self.check[..self.checks as usize])
                    || differ(&self.frame[1..self.len as usize])
            }
    }
}

impl RecentStacks {
    /// Removes all stacks, for another thread.
    pub(crate) fn reset(&mut self) {
        self.place = [0; WAY_COUNT];
        (self.credit, self.pause) = (MAX_CREDIT, 0);
    }

    /// Whether the next stack should be searched in this list. Counts down a pause.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> bool {
        if self.pause == 0 {
            return true;
        }
        self.pause -= 1;
        false
    }

    /// Whether new stacks are to be added.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.pause == 0
    }

    /// Returns the number of the stack at `frame`, if the list has it. The frame must be on the
    /// thread's own stack.
    #[inline(always)]
    pub(crate) fn find(&mut self, frame: CallSite, age: NumberAge) -> Option<StackNumber> {
        // SAFETY: a hook's own return address.
        let pc = unsafe { (frame.slot as *const usize).read() };
        let place = place_word(frame.slot, pc);
        let i = self.place.iter().position(|&p| p == place)?;
        let way = &self.way[i];
        if !way.is_stack_at(frame, pc, age) {
            return None;
        }
        self.credit = (self.credit + CREDIT_PER_HIT).min(MAX_CREDIT);
        Some(way.stack)
    }

    /// Adds a numbered stack to the list, with the words on which its walk depended, newest first.
    #[inline]
    pub(crate) fn keep(
        &mut self,
        stack: StackNumber,
        age: NumberAge,
        walked: &WalkedStack<'_>,
        checks: impl ExactSizeIterator<Item = WalkedWord>,
    ) {
        let (len, checks_len) = (walked.slots.len(), checks.len());
        let (Some(&slot), Some(&pc)) = (walked.slots.last(), walked.pcs.last()) else {
            return;
        };
        if len > MAX_FRAMES || checks_len > MAX_CHECKS {
            return;
        }
        self.credit -= 1;
        if self.credit == 0 {
            (self.credit, self.pause) = (TRIAL_CAPTURES, PAUSE_CAPTURES);
        }
        let place = place_word(slot, pc as usize);
        let same = self.place.iter().position(|&p| p == place);
        let i = same.unwrap_or_else(|| {
            self.next = self.next.wrapping_add(1);
            self.next as usize % WAY_COUNT
        });
        self.place[i] = place;
        let way = &mut self.way[i];
        (way.stack, way.age, way.bp) = (stack, age, walked.bp);
        (way.len, way.checks) = (len as u32, checks_len as u32);
        let newest_first = walked.slots.iter().zip(walked.pcs).rev();
        for (to, (&at, &pc)) in way.frame.iter_mut().zip(newest_first) {
            let expected = pc as usize;
            *to = WalkedWord { at, expected };
        }
        way.check
            .iter_mut()
            .zip(checks)
            .for_each(|(to, word)| *to = word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: StackNumber = StackNumber::from_u32(7);
    const AGE: NumberAge = NumberAge {
        generation: MappingGeneration::from_u32(3),
        unloads: 1,
    };

    fn known() -> Box<RecentStacks> {
        // SAFETY: all zeros are valid.
        let mut known = unsafe { Box::<RecentStacks>::new_zeroed().assume_init() };
        known.reset();
        known
    }

    /// Adds the stack in `memory`, newest frame first. The last word is not a frame, but a word on
    /// which the walk depended.
    fn keep(known: &mut RecentStacks, memory: &[usize], bp: Option<usize>) {
        let (check, frames) = memory.split_last().unwrap();
        let slots: Vec<usize> = frames
            .iter()
            .rev()
            .map(|f| &raw const *f as usize)
            .collect();
        let pcs: Vec<u64> = frames.iter().rev().map(|&pc| pc as u64).collect();
        let word = WalkedWord {
            at: &raw const *check as usize,
            expected: *check,
        };
        let walked = WalkedStack {
            slots: &slots,
            pcs: &pcs,
            bp,
        };
        known.keep(NUMBER, AGE, &walked, std::iter::once(word));
    }

    fn frame(memory: &[usize], bp: usize) -> CallSite {
        CallSite {
            slot: memory.as_ptr() as usize,
            bp,
        }
    }

    #[test]
    fn a_stack_is_found_while_every_word_is_what_it_was() {
        for frames in [1, 2, 5, 6, 9, MAX_FRAMES] {
            let mut known = known();
            let mut memory: Vec<usize> = (1000..1001 + frames).collect();
            keep(&mut known, &memory, None);
            assert_eq!(known.find(frame(&memory, 5), AGE), Some(NUMBER));
            for i in 0..memory.len() {
                memory[i] ^= 1 << 40;
                assert_eq!(known.find(frame(&memory, 5), AGE), None, "{i} of {frames}");
                memory[i] ^= 1 << 40;
            }
            assert_eq!(known.find(frame(&memory[1..], 5), AGE), None);
            for age in [
                NumberAge { unloads: 2, ..AGE },
                NumberAge {
                    generation: MappingGeneration::from_u32(4),
                    ..AGE
                },
            ] {
                assert_eq!(known.find(frame(&memory, 5), age), None);
            }
            assert_eq!(known.find(frame(&memory, 5), AGE), Some(NUMBER));
            known.reset();
            assert_eq!(known.find(frame(&memory, 5), AGE), None);
            // This stack depends on rbp.
            keep(&mut known, &memory, Some(5));
            assert_eq!(known.find(frame(&memory, 5), AGE), Some(NUMBER));
            assert_eq!(known.find(frame(&memory, 6), AGE), None);
        }
    }

    #[test]
    fn what_is_too_long_is_not_kept() {
        let mut known = known();
        let memory = vec![1; MAX_FRAMES + 2];
        keep(&mut known, &memory, None);
        assert_eq!(known.find(frame(&memory, 0), AGE), None);
    }

    #[test]
    fn a_program_that_never_comes_back_is_asked_less_often() {
        let mut known = known();
        let memory = [1, 2, 3];
        let mut looked = 0;
        for _ in 0..10_000 {
            if known.begin() {
                looked += 1;
            }
            if known.is_on() {
                keep(&mut known, &memory, None);
            }
        }
        assert!((300..700).contains(&looked), "{looked}");
        // Each stack that is found pays for more that are kept.
        while !known.begin() {}
        for _ in 0..100 {
            assert!(known.find(frame(&memory, 0), AGE).is_some());
        }
        for _ in 0..MAX_CREDIT - 1 {
            assert!(known.begin());
            keep(&mut known, &memory, None);
        }
    }
}
