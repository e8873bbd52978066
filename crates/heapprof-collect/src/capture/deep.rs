//! Stacks that are deeper than the record: both ends frame by frame, and marks between them.
//!
//! Recursion can go 100,000 calls deep, and comparing each return address would make every
//! allocation down there cost what the stack is deep. What is known of such a stack is its 256
//! newest and its 256 oldest frames ([`KEPT`]). So the record holds these and some more of the
//! newest, and of the frames between only some, as marks: where they lie, and what they held. That
//! the newest frames are what they were is proved as ever, each by the one above it. That the
//! oldest are still the same is concluded from this: their return addresses and all marks stand
//! where they stood. A program that returned from all of them and called as deep again has others
//! in at least one of these places, unless it left all of them unwritten in one huge frame, and
//! came to the same newest 256 at the same address.
//!
//! A stack that returns goes back along the marks: from the newest one that still holds, so much is
//! unwound as makes the newest frames whole again.

use super::{CUT, KEPT, REMEMBERED, Record, term};
use crate::walk::{self, Cursor, Direct};

/// How many of the newest frames stay when a stack becomes too deep.
const NEWEST: usize = 2 * KEPT;
/// One frame in so many becomes a mark.
const SPACING: usize = 64;
/// There are at most so many marks: then every second one goes.
const MARKS: usize = 128;

/// What of the fresh frames was left out, while there is more to come. All zero, nothing was.
#[derive(Clone, Copy, Default)]
pub(super) struct Thinned {
    /// How many of the newest are each other's callers.
    newest: usize,
    /// Where the marks end.
    end: usize,
}

impl Thinned {
    #[inline(always)]
    pub(super) fn is_any(self) -> bool {
        self.end != 0
    }
}

impl Record {
    /// Whether the recorded stack has more frames than are kept.
    pub(crate) fn is_deep(&self) -> bool {
        self.len > 2 * KEPT || self.dense != 0
    }

    /// Of a deep stack, the hash of what is kept of it.
    pub(crate) fn hash_of_ends(&self) -> u64 {
        let oldest = self.term[..KEPT].iter().copied();
        let newest = &self.pc[self.len - KEPT..self.len];
        let newer = newest.iter().zip(KEPT + 1..).map(|(&pc, i)| term(pc, i));
        oldest.chain(newer).fold(term(CUT, KEPT), u64::wrapping_add)
    }

    /// Of a deep stack, what is kept of it, leaf first: as [`walk`](Self::walk) would.
    pub(crate) fn ends(&mut self) -> &[u64] {
        let (oldest, newest) = (&self.pc[..KEPT], &self.pc[self.len - KEPT..self.len]);
        let newest_first = newest.iter().rev().chain([&CUT]).chain(oldest.iter().rev());
        for (kept, &pc) in self.kept.iter_mut().zip(newest_first) {
            *kept = pc;
        }
        &self.kept
    }

    /// Whether frame `i` has a caller that the record left out.
    pub(super) fn is_mark(&self, i: usize) -> bool {
        self.dense != 0 && (KEPT..=self.dense).contains(&i)
    }

    /// Whether the newest frames are enough to tell stacks apart, should the record become its
    /// oldest `keep` and `fresh` ones. Where they are not, some more are unwound than need be, or
    /// it would be this many for each frame that the stack returns from.
    #[cold]
    pub(super) fn is_enough(&self, keep: usize, fresh: usize) -> bool {
        if keep > self.dense && keep + fresh >= self.dense + KEPT {
            return true;
        }
        // Of a mark the caller is what was unwound last.
        keep <= KEPT || fresh >= NEWEST
    }

    /// Takes over the newest of the recorded frames down to the first mark, for they hold. What
    /// they are called from is unwound again. By value: what a call may write to is in no register
    /// of the loop that calls.
    #[cold]
    pub(super) fn carry_over_dense(
        &mut self,
        keep: usize,
        mut cursor: Cursor,
        mut fresh: usize,
        mut memory: Direct,
    ) -> Option<(Cursor, usize)> {
        for i in (self.dense..keep).rev() {
            let rule = self.rule[i];
            self.add::<true>(&mut fresh, cursor, rule);
            cursor = walk::step(&mut memory, cursor, rule)?;
        }
        Some((cursor, fresh))
    }

    /// Makes room among the fresh frames: of those behind the marks all but the last `whole` become
    /// marks. How many frames there are then.
    #[cold]
    pub(super) fn thin(&mut self, fresh: usize, whole: usize) -> usize {
        let thinned = &mut self.thinned;
        if thinned.newest == 0 {
            thinned.newest = NEWEST;
        }
        let begin = thinned.newest;
        let mut to = thinned.end.max(begin);
        let last = fresh - whole;
        for from in (to..last).step_by(SPACING) {
            self.fresh[to] = self.fresh[from];
            to += 1;
        }
        if to - begin > MARKS {
            let marks = (begin..to).step_by(2);
            to = begin + marks.len();
            for (i, from) in marks.enumerate() {
                self.fresh[begin + i] = self.fresh[from];
            }
        }
        thinned.end = to;
        self.fresh.copy_within(last..fresh, to);
        to + whole
    }

    /// The record becomes its oldest `keep` frames and the fresh ones, which are too many, or with
    /// marks among them.
    #[cold]
    pub(super) fn replace_all(&mut self, keep: usize, mut fresh: usize, end: Option<usize>) {
        // The end of the stack is the first check, and the oldest frame's.
        let has_end = keep > 0 && self.check_end[0] > 0;
        let end = if has_end {
            Some(self.check[0].word.at)
        } else {
            end
        };
        let marks = KEPT..self.dense.max(KEPT);
        let mut has_marks = false;
        for i in (0..keep).rev() {
            if marks.contains(&i) && !has_marks {
                has_marks = true;
                if fresh > NEWEST || self.thinned.is_any() {
                    fresh = self.thin(fresh, 0);
                } else {
                    (self.thinned.newest, self.thinned.end) = (fresh, fresh);
                }
            }
            let cursor = Cursor {
                slot: self.slot[i],
                bp: self.bp[i],
                pc: self.pc[i] as usize,
            };
            let rule = self.rule[i];
            self.add::<true>(&mut fresh, cursor, rule);
            if marks.contains(&i) {
                self.thinned.end = fresh;
            }
        }
        // Marks, too, may be too many by now.
        fresh = self.thin(fresh, KEPT);
        self.len = 0;
        (self.hash, self.shared) = (0, 0);
        self.dense = fresh - self.thinned.newest;
        self.thinned = Thinned::default();
        self.replace::<true>(0, fresh, end);
    }
}

const _: () = assert!(REMEMBERED >= NEWEST + MARKS + 2 * KEPT);
