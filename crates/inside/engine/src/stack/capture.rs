//! Captures the stack of an allocation, and reuses the thread's last stack to unwind less.
//!
//! A thread's next stack mostly shares its outer frames with the last one. So the last stack is
//! recorded, with the address of each return address. When unwinding reaches a frame at the address
//! of a recorded frame, the older frames are compared with memory instead of being unwound. If all
//! their return addresses are unchanged, and also every saved rbp on which a frame's address
//! depends, unwinding would read the same words and end at the same frame. If a return address has
//! changed, but its unwind rule has not, the record is patched in place.
//!
//! A stack's identity is a sum of one term for each frame: its return address, mixed with its
//! distance from the root. So only the terms of changed frames are computed again.
//!
//! Of a deep stack, only the two ends are recorded, so only they need to be compared. Between them
//! the record has marks (`deep_stack`).

mod deep_stack;
mod full_walk;
#[cfg(test)]
mod tests;
mod verify;

use heapprof_abi::{FrameAddress, MappingGeneration, StackNumber};

use crate::arch::{UnwindRule, UnwindRuleKind, strip_pointer_authentication};
use crate::stack::call_site::CallSite;
use crate::stack::own_stack;
use crate::stack::recent_stacks::{NumberAge, RecentStacks, WalkedStack, WalkedWord};
use crate::stack::walk::{
    self, DirectMemory, ForeignMemory, FrameCursor, StackBounds, Unwinder, WalkMemory,
};
use deep_stack::ThinnedFrames;
use full_walk::MixedMemory;

/// Maximum number of frames of each end of a deep stack. The word [`CUT`] stands between the two
/// ends.
pub(crate) const FRAMES_PER_END: usize = 256;
/// A word that stands for the frames that were left out.
pub(crate) use heapprof_abi::word::CUT;
/// Maximum number of frames of the last stack that are remembered for reuse. Shallow stacks touch
/// only a part of this memory. The number is not a power of two, because the arrays of
/// [`LastStack`] would then begin in the same cache sets.
const MAX_REMEMBERED_FRAMES: usize = 1280 + 8;
/// Maximum number of frames of a walk. It ends the walk of a stack that loops.
const MAX_WALK_FRAMES: usize = 1 << 20;
/// Maximum number of times that a capture reaches recorded frames and finds a change in them. After
/// more changes, unwinding alone is quicker.
const MAX_BROKEN_REUSES: u32 = 2;

/// The record of a thread's last stack, root first.
pub(crate) struct LastStack {
    pub(crate) bounds: StackBounds,
    /// Number of unloads of code before the stack was recorded.
    unloads: u32,
    len: usize,
    /// Index of the first frame after all gaps in the record; 0 if there are no gaps. From this
    /// index on, each frame's caller is the previous entry. In a deep stack, the oldest frames and
    /// then marks are below this index.
    dense: usize,
    /// Number of entries of `check`.
    checks: usize,
    hash: u64,
    /// Whether the last two captures found the same stack.
    steady: bool,
    /// Whether the last comparison with memory found no change except in the newest frame.
    tidy: bool,
    /// Whether the recorded stack ends before its outermost frame.
    ends_early: bool,
    /// Whether the stack that [`walk`](Self::walk) found ends before its outermost frame.
    walk_ends_early: bool,
    /// The recorded stack's number, if it has one.
    stack: Option<StackNumber>,
    /// Number of oldest frames that the recorded stack shares with the stack for which
    /// [`note_number`](Self::note_number) was last called.
    shared: usize,
    /// The word of each frame's address.
    pc: [u64; MAX_REMEMBERED_FRAMES],
    /// Addresses of the return addresses, by frame.
    slot: [usize; MAX_REMEMBERED_FRAMES],
    rule: [UnwindRule; MAX_REMEMBERED_FRAMES],
    bp: [usize; MAX_REMEMBERED_FRAMES],
    term: [u64; MAX_REMEMBERED_FRAMES],
    /// The return address that the last patch replaced. It is remembered because loops alternate
    /// between two return addresses.
    other_pc: [u64; MAX_REMEMBERED_FRAMES],
    /// The term of `other_pc`.
    other_term: [u64; MAX_REMEMBERED_FRAMES],
    /// For each frame: whether the address of this frame, or of an older frame, depends on the
    /// value of rbp in this frame.
    needs_bp: [bool; MAX_REMEMBERED_FRAMES],
    /// Number of entries of `check` for this frame and all older frames.
    check_end: [u32; MAX_REMEMBERED_FRAMES],
    /// Words on which the walk depended, besides return addresses.
    check: [WalkCheck; 2 * MAX_REMEMBERED_FRAMES],
    /// Frames that [`walk`](Self::walk) found.
    kept: [u64; 2 * FRAMES_PER_END + 1],
    foreign: ForeignMemory,
    /// Frames that the current capture has unwound, leaf first.
    fresh: [(FrameCursor, UnwindRule); MAX_REMEMBERED_FRAMES],
    thinned: ThinnedFrames,
    recent: RecentStacks,
}

#[derive(Clone, Copy)]
struct WalkCheck {
    word: WalkedWord,
    frame: u32,
}

/// Result of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureOutcome {
    /// The stack equals the recorded stack.
    Same,
    /// The stack equals an earlier stack, which has this number. The record is unchanged.
    Recent(StackNumber),
    /// The stack differs from the previous record, and is in the record now.
    Recorded,
    /// The stack belongs to an interpreter, and is in that interpreter's own record. The flag says
    /// whether it is unchanged since the last capture.
    Script(bool),
    /// The stack can't be remembered, because it is not the thread's own stack, or leads through a
    /// signal. The caller must find the stack by [`LastStack::walk`].
    Unrecorded,
}

/// The reason why a walk found no stack for the record.
enum WalkFailure {
    /// The stack can't be remembered. The caller must find it by [`LastStack::walk`].
    Unrecorded,
    /// The stack has more frames than are remembered.
    Deep,
}

/// Returns a word's term in the hash of a stack, at distance `index` from the root.
pub(crate) fn hash_term(pc: u64, index: usize) -> u64 {
    let mut x = (pc ^ (index as u64).wrapping_mul(0xd6e8_feb8_6659_fd93))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 32;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // This comes last, because a multiplication would distribute over the sum. Two stacks that swap
    // frames could then have the same hash.
    x ^ x >> 29
}

impl LastStack {
    /// Clears the last stack and the thread's stack bounds, for use by another thread.
    pub(crate) fn reset(&mut self) {
        self.forget();
        self.recent.reset();
        self.bounds = StackBounds::default();
    }

    /// Captures the stack of the call at `frame`, with as little unwinding as possible.
    #[inline(always)]
    pub(crate) fn capture(&mut self, frame: CallSite, unwinder: Unwinder<'_>) -> CaptureOutcome {
        if self.steady && self.is_unchanged(frame, unwinder) {
            return CaptureOutcome::Same;
        }
        // Known stacks lie on the thread's own stack only.
        let own = self.bounds.start <= frame.slot && frame.slot < self.bounds.end;
        if own && frame.slot & 7 == 0 && self.recent.begin() {
            return self.find_recent(frame, unwinder);
        }
        self.find_changes(frame, unwinder)
    }

    fn find_recent(&mut self, frame: CallSite, unwinder: Unwinder<'_>) -> CaptureOutcome {
        let age = NumberAge {
            generation: unwinder.code.mappings.generation(),
            unloads: unwinder.code.modules.unloads(),
        };
        match self.recent.find(frame, age) {
            // The stack is the one in the record. From now on the record is checked first.
            found @ Some(_) if found == self.stack => {
                self.steady = true;
                CaptureOutcome::Same
            }
            Some(stack) => {
                self.steady = false;
                CaptureOutcome::Recent(stack)
            }
            None => self.find_changes(frame, unwinder),
        }
    }

    fn find_changes(&mut self, frame: CallSite, unwinder: Unwinder<'_>) -> CaptureOutcome {
        let before = self.hash;
        let found = match self.dense {
            0 => self.walk_to_what_holds::<false>(frame, before, unwinder),
            _ => self.walk_deep(frame, before, unwinder),
        };
        let found = match found {
            Err(WalkFailure::Deep) => self.walk_deep(frame, before, unwinder),
            found => found,
        };
        found.unwrap_or_else(|_| {
            // Otherwise the next reader would take the record for the stack that is walked now.
            self.forget();
            CaptureOutcome::Unrecorded
        })
    }

    /// Walks a stack that is or was deeper than the record. This is a separate function, so that
    /// the loop for other stacks stays short.
    #[cold]
    #[inline(never)]
    fn walk_deep(
        &mut self,
        frame: CallSite,
        before: u64,
        unwinder: Unwinder<'_>,
    ) -> Result<CaptureOutcome, WalkFailure> {
        self.walk_to_what_holds::<true>(frame, before, unwinder)
    }

    /// Whether `frame` is on the thread's own stack. Only then may the record be used for it.
    #[inline(always)]
    fn is_own(&mut self, frame: CallSite, unwinder: Unwinder<'_>) -> bool {
        let unloads = unwinder.code.modules.unloads();
        if self.unloads != unloads {
            self.unloads = unloads;
            self.forget();
        }
        let is_outside =
            |bounds: StackBounds| frame.slot < bounds.start || frame.slot >= bounds.end;
        !is_outside(self.bounds) || !is_outside(self.own_stack(frame))
    }

    /// Returns the bounds of the thread's own stack; empty if they can't be found.
    #[inline(always)]
    pub(crate) fn own_stack(&mut self, frame: CallSite) -> StackBounds {
        if self.bounds.end == 0 {
            let local = heapprof_platform::tls::current() as usize;
            self.bounds = own_stack::find(frame.slot, local);
        }
        self.bounds
    }

    /// Unwinds until it reaches a recorded frame that is unchanged, and whose older frames are
    /// unchanged, too. Returns `Unrecorded` in three cases: the stack is not the thread's own, it
    /// leads through a frame without a simple rule, or a frame that is carried over has no caller
    /// in the thread's own stack. If `DEEP` is false, the record has no marks, and a walk that
    /// would need marks returns `Deep`. `before` is the hash of the last stack.
    #[inline(always)]
    fn walk_to_what_holds<const DEEP: bool>(
        &mut self,
        frame: CallSite,
        before: u64,
        unwinder: Unwinder<'_>,
    ) -> Result<CaptureOutcome, WalkFailure> {
        use WalkFailure::{Deep, Unrecorded};
        if !self.is_own(frame, unwinder) {
            return Err(Unrecorded);
        }
        let mut memory = DirectMemory(StackBounds {
            start: frame.slot,
            end: self.bounds.end,
        });
        let mut cursor = FrameCursor {
            slot: frame.slot,
            bp: frame.bp,
            pc: read_return_address(&mut memory, frame.slot).ok_or(Unrecorded)?,
        };
        let (mut keep, mut fresh, mut patience) = (self.len, 0, MAX_BROKEN_REUSES);
        // Address of a zero that ended the walk.
        let mut end = None;
        loop {
            while keep > 0 && self.slot[keep - 1] < cursor.slot {
                keep -= 1;
            }
            if keep > 0
                && self.slot[keep - 1] == cursor.slot
                && patience > 0
                && self.fits(keep - 1, cursor)
                && (!DEEP || self.dense == 0 || self.is_enough(keep, fresh))
            {
                let Some(broken) = self.verify(keep, unwinder) else {
                    break;
                };
                patience -= 1;
                if DEEP && broken < self.dense {
                    let carried = self.carry_over_dense(keep, cursor, fresh, memory, unwinder);
                    (cursor, fresh) = carried.ok_or(Unrecorded)?;
                } else {
                    let newer = broken + 1..keep;
                    if !DEEP && fresh + newer.len() > MAX_REMEMBERED_FRAMES {
                        return Err(Deep);
                    }
                    let bp = cursor.bp;
                    let carried =
                        self.carry_over::<DEEP>(newer, bp, &mut fresh, &mut memory, unwinder);
                    cursor = carried.ok_or(Unrecorded)?;
                }
                keep = broken;
                if cursor.pc.is_zero() {
                    (keep, end) = (0, Some(cursor.slot));
                    self.ends_early = false;
                    break;
                }
            }
            let rule = unwinder.rule(cursor.pc);
            if rule.kind() == UnwindRuleKind::Complex {
                return Err(Unrecorded);
            }
            if !DEEP && fresh == MAX_REMEMBERED_FRAMES {
                return Err(Deep);
            }
            self.add::<DEEP>(&mut fresh, cursor, rule);
            match unwinder.step(&mut memory, cursor, rule) {
                Some(caller) => cursor = caller,
                None => {
                    (keep, end) = (0, walk::end_word(&mut memory, cursor, rule));
                    self.ends_early = end.is_none() && unwinder.ends_early(cursor, rule);
                    break;
                }
            }
        }
        self.steady = keep == self.len && fresh == 0 && self.hash == before && self.len > 0;
        if self.steady {
            return Ok(CaptureOutcome::Same);
        }
        self.stack = None;
        if keep + fresh > MAX_REMEMBERED_FRAMES || DEEP && self.thinned.is_any() {
            self.replace_all(keep, fresh, end);
        } else {
            if DEEP && self.dense >= keep {
                // Marks are kept, and the newest of them is the caller of the oldest fresh frame.
                // Or only the oldest frames are kept.
                self.dense = if keep > FRAMES_PER_END { keep - 1 } else { 0 };
            }
            self.replace::<false>(keep, fresh, end);
        }
        Ok(CaptureOutcome::Recorded)
    }

    /// Adds the recorded frames `frames`, which are unchanged, to the fresh frames. The next older
    /// frame has changed. Returns the current cursor of the changed frame. `bp` is the value of rbp
    /// in the newest frame.
    #[inline(always)]
    fn carry_over<const DEEP: bool>(
        &mut self,
        frames: std::ops::Range<usize>,
        mut bp: usize,
        fresh: &mut usize,
        memory: &mut DirectMemory,
        unwinder: Unwinder<'_>,
    ) -> Option<FrameCursor> {
        let broken = frames.start - 1;
        for i in frames.rev() {
            let (slot, rule) = (self.slot[i], self.rule[i]);
            let pc = FrameAddress::from_word(self.pc[i]);
            let held = FrameCursor { slot, bp, pc };
            self.add::<DEEP>(fresh, held, rule);
            bp = unwinder.step(memory, held, rule)?.bp;
        }
        let slot = self.slot[broken];
        let pc = read_return_address(memory, slot)?;
        Some(FrameCursor { slot, bp, pc })
    }

    /// Adds a frame for the new record. If `DEEP` is false, there is always room for it.
    #[inline(always)]
    fn add<const DEEP: bool>(&mut self, fresh: &mut usize, cursor: FrameCursor, rule: UnwindRule) {
        if DEEP && *fresh == MAX_REMEMBERED_FRAMES {
            *fresh = self.thin(*fresh, FRAMES_PER_END);
        }
        self.fresh[*fresh] = (cursor, rule);
        *fresh += 1;
    }

    fn forget(&mut self) {
        (self.len, self.dense, self.checks, self.hash) = (0, 0, 0, 0);
        self.thinned = ThinnedFrames::default();
        (self.steady, self.shared, self.stack) = (false, 0, None);
    }

    #[inline]
    fn fits(&self, i: usize, cursor: FrameCursor) -> bool {
        !self.needs_bp[i] || self.bp[i] == cursor.bp
    }

    /// Replaces the record by its `keep` oldest frames and the `fresh` new ones. If `keep` is 0,
    /// `end` is the address of the word that must stay zero. If `MARKED` is false, each fresh frame
    /// is the caller of the previous one.
    #[inline(always)]
    fn replace<const MARKED: bool>(&mut self, keep: usize, fresh: usize, end: Option<usize>) {
        for i in keep..self.len {
            self.hash = self.hash.wrapping_sub(self.term[i]);
        }
        self.len = keep + fresh;
        self.shared = self.shared.min(keep);
        self.checks = if keep == 0 {
            0
        } else {
            self.check_end[keep - 1] as usize
        };
        if let (0, Some(at)) = (keep, end) {
            self.check(at, 0, 0);
        }
        for i in keep..self.len {
            let (cursor, rule) = self.fresh[self.len - 1 - i];
            self.pc[i] = cursor.pc.to_word();
            self.slot[i] = cursor.slot;
            self.rule[i] = rule;
            self.bp[i] = cursor.bp;
            self.term[i] = hash_term(cursor.pc.to_word(), i);
            self.other_pc[i] = 0;
            self.hash = self.hash.wrapping_add(self.term[i]);
            let has_caller = i > 0 && !(MARKED && self.is_mark(i));
            let older_needs = has_caller && self.needs_bp[i - 1];
            self.needs_bp[i] = rule.uses_rbp() || (rule.saved_rbp().is_none() && older_needs);
            if has_caller {
                let cfa = self.slot[i - 1] + 8;
                let deref = rule.kind() == UnwindRuleKind::DerefRbp;
                if deref {
                    self.check(cursor.bp.wrapping_add(rule.cfa()), cfa, i);
                }
                if let (Some(offset), true) = (rule.saved_rbp(), older_needs) {
                    let base = if deref { cursor.bp } else { cfa };
                    self.check(base.wrapping_add(offset), self.bp[i - 1], i);
                }
            }
            self.check_end[i] = self.checks as u32;
        }
    }

    fn check(&mut self, at: usize, expected: usize, frame: usize) {
        self.check[self.checks] = WalkCheck {
            word: WalkedWord { at, expected },
            frame: frame as u32,
        };
        self.checks += 1;
    }

    /// Returns the recorded stack's hash.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Notes the recorded stack's number, and the generation of mappings in which the number is
    /// valid. `stack` is `None` if the stack has no valid number.
    pub(crate) fn note_number(
        &mut self,
        stack: Option<StackNumber>,
        generation: MappingGeneration,
    ) {
        self.stack = stack;
        self.shared = if stack.is_some() { self.len } else { 0 };
        if let Some(stack) = stack
            && self.recent.is_on()
        {
            self.keep(stack, generation);
        }
    }

    /// Adds the recorded stack to the list of recent stacks.
    fn keep(&mut self, stack: StackNumber, generation: MappingGeneration) {
        let Some(newest) = self.len.checked_sub(1) else {
            return;
        };
        let age = NumberAge {
            generation,
            unloads: self.unloads,
        };
        let walked = WalkedStack {
            slots: &self.slot[..self.len],
            pcs: &self.pc[..self.len],
            bp: self.needs_bp[newest].then_some(self.bp[newest]),
        };
        let checks = self.check[..self.check_end[newest] as usize].iter().rev();
        self.recent
            .keep(stack, age, &walked, checks.map(|check| check.word));
    }

    /// Returns the number of oldest frames that the recorded stack shares with the last stack that
    /// got a number.
    pub(crate) fn shared_frames(&self) -> usize {
        self.shared
    }

    /// Returns the recorded return addresses, root first.
    pub(crate) fn frames(&self) -> &[u64] {
        &self.pc[..self.len]
    }

    /// Whether the recorded stack ends before its outermost frame.
    pub(crate) fn ends_early(&self) -> bool {
        self.ends_early
    }

    /// Whether the stack that [`walk`](Self::walk) or [`walk_placed`](Self::walk_placed) found last
    /// ends before its outermost frame.
    pub(crate) fn walk_ends_early(&self) -> bool {
        self.walk_ends_early
    }

    /// Returns the `len` frames that [`walk`](Self::walk) found last.
    pub(crate) fn walked_frames(&self, len: usize) -> &[u64] {
        &self.kept[..len]
    }

    /// Unwinds from `frame`, leaf first, and stores at most `FRAMES_PER_END` frames for each end.
    /// Returns the number of frames, for [`walked_frames`](Self::walked_frames).
    #[cold]
    pub(crate) fn walk(&mut self, frame: CallSite, unwinder: Unwinder<'_>) -> usize {
        let pc = (|cursor: FrameCursor| cursor.pc.to_word(), CUT);
        let (len, ends_early) = walk_into(
            &mut self.kept,
            pc,
            (self.bounds, &mut self.foreign),
            frame,
            unwinder,
        );
        self.walk_ends_early = ends_early;
        len
    }

    /// Unwinds as [`walk`](Self::walk) does, but stores each frame with its address. Returns the
    /// number of frames.
    #[cold]
    pub(crate) fn walk_placed(
        &mut self,
        frame: CallSite,
        unwinder: Unwinder<'_>,
        to: &mut [PlacedFrame; 2 * FRAMES_PER_END + 1],
    ) -> usize {
        let placed = |cursor: FrameCursor| PlacedFrame {
            pc: cursor.pc.to_word(),
            slot: cursor.slot as u64,
        };
        let cut = PlacedFrame { pc: CUT, slot: 0 };
        let memory = (self.bounds, &mut self.foreign);
        let (len, ends_early) = walk_into(to, (placed, cut), memory, frame, unwinder);
        self.walk_ends_early = ends_early;
        len
    }
}

/// A native frame, with the address of the return address into it. The frame's own memory begins
/// right above that address, and ends with the return address into the frame's caller.
#[derive(Clone, Copy)]
pub(crate) struct PlacedFrame {
    /// The word of the frame's address, or [`CUT`].
    pub(crate) pc: u64,
    /// Address of the return address into the frame. The frame's own memory begins right above it.
    pub(crate) slot: u64,
}

/// Walks a stack into `to`. Returns the number of frames, and whether the stack ends before its
/// outermost frame.
fn walk_into<Frame: Copy>(
    to: &mut [Frame; 2 * FRAMES_PER_END + 1],
    kept: (impl Fn(FrameCursor) -> Frame, Frame),
    (own, foreign): (StackBounds, &mut ForeignMemory),
    frame: CallSite,
    unwinder: Unwinder<'_>,
) -> (usize, bool) {
    if frame.slot < own.start || frame.slot >= own.end {
        return full_walk::walk(foreign.begin(frame.slot), frame, to, kept, unwinder);
    }
    let bounds = StackBounds {
        start: frame.slot,
        end: own.end,
    };
    let memory = &mut MixedMemory(DirectMemory(bounds), foreign.begin_elsewhere());
    full_walk::walk(memory, frame, to, kept, unwinder)
}

/// Returns the return address at `slot`.
#[inline(always)]
fn read_return_address(memory: &mut DirectMemory, slot: usize) -> Option<FrameAddress> {
    let address = strip_pointer_authentication(memory.read(slot)?);
    Some(FrameAddress::from_return_address(address as u64))
}

/// Returns the hash of a stack that was walked (leaf first).
pub(crate) fn hash(kept: &[u64]) -> u64 {
    let terms = kept
        .iter()
        .rev()
        .enumerate()
        .map(|(i, &pc)| hash_term(pc, i));
    terms.fold(0, u64::wrapping_add)
}
