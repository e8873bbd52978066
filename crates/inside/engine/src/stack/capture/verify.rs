//! Checks whether a recorded stack is unchanged in memory. Patches return addresses that have
//! changed without any effect on the other frames.

use heapprof_abi::FrameAddress;

use super::{LastStack, MAX_REMEMBERED_FRAMES, hash_term};

use crate::arch::UnwindRuleKind;
use crate::stack::call_site::CallSite;
use crate::stack::recent_stacks::WalkedWord;
use crate::stack::walk::Unwinder;

impl LastStack {
    /// Compares the oldest `keep` frames with memory, and patches changed return addresses if that
    /// is allowed. Returns the newest frame with any other change; `None` if there is none.
    #[inline]
    pub(super) fn verify(&mut self, keep: usize, unwinder: Unwinder<'_>) -> Option<usize> {
        let check = self.find_broken_check(keep);
        let mut newest = keep - 1;
        if check == Some(newest) {
            return check;
        }
        // Mostly the newest frame now calls from another place, and older ones call from the same
        // place as before.
        if self.current_return_address(newest) != self.pc[newest] && !self.patch(newest, unwinder) {
            return Some(newest);
        }
        let tidy = std::mem::replace(&mut self.tidy, false);
        if tidy && check.is_none() && !self.any_changed(newest) {
            self.tidy = true;
            return None;
        }
        let mut all = 0u64;
        // Frames that are older than one with another broken check are of no interest, and may not
        // be there.
        let last = check.map_or(0, |broken| broken + 1);
        while newest > last {
            let oldest = newest.saturating_sub(64).max(last);
            // The comparison has no branches, because it can't be predicted where differences are.
            // The newest frame's bit is the lowest.
            let mut differing = 0u64;
            let (slots, pcs) = (&self.slot[oldest..newest], &self.pc[oldest..newest]);
            let mut compare = |slot: usize, pc: u64| {
                // SAFETY: recorded slots lie between a newer frame and the end of this thread's
                // stack.
                let now = unsafe { (slot as *const u64).read() };
                differing = differing << 1 | u64::from(now != pc);
            };
            let (slots_by_4, slots_left) = slots.as_chunks::<4>();
            let (pcs_by_4, pcs_left) = pcs.as_chunks::<4>();
            for (slot, pc) in slots_by_4.iter().zip(pcs_by_4) {
                (0..4).for_each(|i| compare(slot[i], pc[i]));
            }
            for (&slot, &pc) in slots_left.iter().zip(pcs_left) {
                compare(slot, pc);
            }
            all |= differing;
            while differing != 0 {
                let i = newest - 1 - differing.trailing_zeros() as usize;
                if !self.patch(i, unwinder) {
                    return Some(i);
                }
                differing &= differing - 1;
            }
            newest = oldest;
        }
        self.tidy = all == 0;
        check
    }

    /// Whether any of the oldest `keep` return addresses has changed. This check is the quickest,
    /// because it does not find out which return address has changed.
    #[inline(always)]
    pub(super) fn any_changed(&self, keep: usize) -> bool {
        let (slots_by_8, slots_left) = self.slot[..keep].as_chunks::<8>();
        let (pcs_by_8, pcs_left) = self.pc[..keep].as_chunks::<8>();
        let changed = |slot: usize, pc: u64| {
            // SAFETY: recorded slots lie between a newer frame, which is where it was, and the end
            // of this thread's stack.
            unsafe { (slot as *const u64).read() ^ pc }
        };
        let mut any = 0;
        for (slots, pcs) in slots_by_8.iter().zip(pcs_by_8) {
            let changed = (0..8).fold(0, |any, i| any | changed(slots[i], pcs[i]));
            // The black box keeps this from becoming a branch for each word.
            any |= std::hint::black_box(changed);
        }
        for (&slot, &pc) in slots_left.iter().zip(pcs_left) {
            any |= changed(slot, pc);
        }
        any != 0
    }

    /// Whether the stack at `frame` is equal to the recorded stack.
    #[inline(always)]
    pub(super) fn is_unchanged(&self, frame: CallSite, unwinder: Unwinder<'_>) -> bool {
        let len = self.len;
        if len == 0 || len > MAX_REMEMBERED_FRAMES {
            return false;
        }
        let newest = len - 1;
        let fits = !self.needs_bp[newest] || self.bp[newest] == frame.bp;
        let is_old = self.unloads != unwinder.code.modules.unloads();
        if self.slot[newest] != frame.slot || !fits || is_old {
            return false;
        }
        // The order matters: if a saved rbp has changed, the callers lie elsewhere, and their old
        // place may be gone.
        self.find_broken_check(len).is_none() && !self.any_changed(len)
    }

    /// Returns the current return address of frame `i` in memory.
    #[inline(always)]
    pub(super) fn current_return_address(&self, i: usize) -> u64 {
        // SAFETY: recorded slots lie between a newer frame and the end of this thread's stack.
        unsafe { (self.slot[i] as *const u64).read() }
    }

    /// Returns the newest frame that has a changed word besides the return address.
    #[inline(always)]
    pub(super) fn find_broken_check(&self, keep: usize) -> Option<usize> {
        let end = self.check_end[keep - 1] as usize;
        let broken = self.check[..end].iter().rev().find(|check| {
            let WalkedWord { at, expected } = check.word;
            // SAFETY: checked words lie in this thread's stack above the current frame, like slots.
            at < self.bounds.end && unsafe { (at as *const usize).read() } != expected
        });
        broken.map(|check| check.frame as usize)
    }

    /// Replaces the recorded return address of frame `i` by the current one, if both have the same
    /// unwind rule. Returns whether it was replaced.
    #[inline(always)]
    pub(super) fn patch(&mut self, i: usize, unwinder: Unwinder<'_>) -> bool {
        let pc = self.current_return_address(i);
        if pc == 0 {
            // A zero ends the stack. It is no place in a caller.
            return false;
        }
        let new = if pc == self.other_pc[i] {
            self.other_term[i]
        } else {
            let rule = unwinder.rule(FrameAddress::from_return_address(pc));
            if rule != self.rule[i] || rule.kind() == UnwindRuleKind::Complex {
                return false;
            }
            hash_term(pc, i)
        };
        (self.other_pc[i], self.other_term[i]) = (self.pc[i], self.term[i]);
        self.hash = self.hash.wrapping_sub(self.term[i]).wrapping_add(new);
        (self.pc[i], self.term[i]) = (pc, new);
        self.shared = self.shared.min(i);
        true
    }
}
