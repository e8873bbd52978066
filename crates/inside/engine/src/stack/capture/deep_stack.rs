//! Captures stacks that are deeper than the record. The record has both ends of such a stack frame
//! by frame, and marks between them.
//!
//! Recursion can go 100,000 calls deep. If each return address were compared, the cost of an
//! allocation would grow with the depth of the stack. A profile has only the 256 newest and the 256
//! oldest frames of such a stack ([`FRAMES_PER_END`]). So the record has these frames, some more of
//! the newest ones, and only a few of the frames between, the marks. The record has the address and
//! the word of each mark. Each of the newest frames is proved unchanged by the frame above it, as
//! in any stack. The oldest frames count as unchanged if their return addresses and all marks have
//! the same words at the same addresses. If a program has returned from all marks and has called as
//! deep again, at least one of these words differs. There is one exception: a program that skips
//! all of these addresses in one huge frame, without writing to them, and reaches the same 256
//! newest frames at the same addresses.
//!
//! When a deep stack returns, it goes back along the marks: it is unwound until the newest frames
//! are complete again, and then down to the newest mark that is unchanged.

use heapprof_abi::FrameAddress;

use super::{CUT, FRAMES_PER_END, LastStack, MAX_REMEMBERED_FRAMES, hash_term};

use crate::stack::walk::{DirectMemory, FrameCursor, Unwinder};

/// Number of newest frames that stay in the record when a stack becomes too deep for it.
const NEWEST_FRAMES: usize = 2 * FRAMES_PER_END;
/// Distance between two marks, in frames.
const MARK_SPACING: usize = 64;
/// Maximum number of marks. When there are more marks, every second mark is dropped.
const MAX_MARKS: usize = 128;

/// The position of the gaps in the fresh frames, after frames were left out. If both numbers are
/// zero, no frame was left out.
#[derive(Clone, Copy, Default)]
pub(super) struct ThinnedFrames {
    /// Number of newest frames without gaps.
    newest: usize,
    /// Index behind the last mark.
    end: usize,
}

impl ThinnedFrames {
    #[inline(always)]
    pub(super) fn is_any(self) -> bool {
        self.end != 0
    }
}

impl LastStack {
    /// Whether the recorded stack has more frames than a profile shows.
    pub(crate) fn is_deep(&self) -> bool {
        self.len > 2 * FRAMES_PER_END || self.dense != 0
    }

    /// Returns the hash of both ends of a deep stack.
    pub(crate) fn hash_of_ends(&self) -> u64 {
        let oldest = self.term[..FRAMES_PER_END].iter().copied();
        let newest = &self.pc[self.len - FRAMES_PER_END..self.len];
        let newer = newest
            .iter()
            .zip(FRAMES_PER_END + 1..)
            .map(|(&pc, i)| hash_term(pc, i));
        oldest
            .chain(newer)
            .fold(hash_term(CUT, FRAMES_PER_END), u64::wrapping_add)
    }

    /// Returns both ends of a deep stack, leaf first. The order and the limits are the same as in
    /// [`walk`](Self::walk).
    pub(crate) fn ends(&mut self) -> &[u64] {
        let (oldest, newest) = (
            &self.pc[..FRAMES_PER_END],
            &self.pc[self.len - FRAMES_PER_END..self.len],
        );
        let newest_first = newest.iter().rev().chain([&CUT]).chain(oldest.iter().rev());
        for (kept, &pc) in self.kept.iter_mut().zip(newest_first) {
            *kept = pc;
        }
        &self.kept
    }

    /// Whether frame `i` has a caller that the record left out.
    pub(super) fn is_mark(&self, i: usize) -> bool {
        self.dense != 0 && (FRAMES_PER_END..=self.dense).contains(&i)
    }

    /// Whether a record of the `keep` oldest frames of the current record and of `fresh` new frames
    /// has enough of the newest frames. If not, the walk unwinds more frames than it needs now.
    /// With too few newest frames, a walk would have to unwind many frames each time the stack
    /// returns from one frame.
    #[cold]
    pub(super) fn is_enough(&self, keep: usize, fresh: usize) -> bool {
        if keep > self.dense && keep + fresh >= self.dense + FRAMES_PER_END {
            return true;
        }
        // Otherwise the fresh frames alone must be enough, unless only the oldest frames are kept.
        keep <= FRAMES_PER_END || fresh >= NEWEST_FRAMES
    }

    /// Adds the unchanged recorded frames that are newer than all marks to the fresh frames. Their
    /// callers are unwound again. The arguments are passed by value, so that the calling loop can
    /// keep its variables in registers.
    #[cold]
    pub(super) fn carry_over_dense(
        &mut self,
        keep: usize,
        mut cursor: FrameCursor,
        mut fresh: usize,
        mut memory: DirectMemory,
        unwinder: Unwinder<'_>,
    ) -> Option<(FrameCursor, usize)> {
        for i in (self.dense..keep).rev() {
            let rule = self.rule[i];
            self.add::<true>(&mut fresh, cursor, rule);
            cursor = unwinder.step(&mut memory, cursor, rule)?;
        }
        Some((cursor, fresh))
    }

    /// Makes room among the fresh frames: reduces the frames behind the marks, except the last
    /// `whole` frames, to further marks. Returns the new number of frames.
    #[cold]
    pub(super) fn thin(&mut self, fresh: usize, whole: usize) -> usize {
        let thinned = &mut self.thinned;
        if thinned.newest == 0 {
            thinned.newest = NEWEST_FRAMES;
        }
        let begin = thinned.newest;
        let mut to = thinned.end.max(begin);
        let last = fresh - whole;
        for from in (to..last).step_by(MARK_SPACING) {
            self.fresh[to] = self.fresh[from];
            to += 1;
        }
        if to - begin > MAX_MARKS {
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

    /// Replaces the record by its `keep` oldest frames and the `fresh` new ones. This is for
    /// records that would have too many frames, or that have marks.
    #[cold]
    pub(super) fn replace_all(&mut self, keep: usize, mut fresh: usize, end: Option<usize>) {
        // The end of the stack is the first check, which belongs to the oldest frame.
        let has_end = keep > 0 && self.check_end[0] > 0;
        let end = if has_end {
            Some(self.check[0].word.at)
        } else {
            end
        };
        let marks = FRAMES_PER_END..self.dense.max(FRAMES_PER_END);
        let mut has_marks = false;
        for i in (0..keep).rev() {
            if marks.contains(&i) && !has_marks {
                has_marks = true;
                if fresh > NEWEST_FRAMES || self.thinned.is_any() {
                    fresh = self.thin(fresh, 0);
                } else {
                    (self.thinned.newest, self.thinned.end) = (fresh, fresh);
                }
            }
            let cursor = FrameCursor {
                slot: self.slot[i],
                bp: self.bp[i],
                pc: FrameAddress::from_word(self.pc[i]),
            };
            let rule = self.rule[i];
            self.add::<true>(&mut fresh, cursor, rule);
            if marks.contains(&i) {
                self.thinned.end = fresh;
            }
        }
        // By now there may also be too many marks.
        fresh = self.thin(fresh, FRAMES_PER_END);
        self.len = 0;
        (self.hash, self.shared) = (0, 0);
        self.dense = fresh - self.thinned.newest;
        self.thinned = ThinnedFrames::default();
        self.replace::<true>(0, fresh, end);
    }
}

const _: () = assert!(MAX_REMEMBERED_FRAMES >= NEWEST_FRAMES + MAX_MARKS + 2 * FRAMES_PER_END);
