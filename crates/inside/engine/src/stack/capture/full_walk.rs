//! Walks a stack from end to end, without the record of the last stack. Leaves out the middle of a
//! deep stack.

use heapprof_abi::FrameAddress;

use super::{FRAMES_PER_END, MAX_WALK_FRAMES};

use crate::arch::strip_pointer_authentication;
use crate::stack::call_site::CallSite;
use crate::stack::walk::{self, DirectMemory, ForeignMemory, FrameCursor, Unwinder, WalkMemory};

/// Memory for a walk: the thread's own stack is read directly, and other memory with the kernel's
/// checks. A signal frame leads to such other memory.
pub(super) struct MixedMemory<'a>(pub(super) DirectMemory, pub(super) &'a mut ForeignMemory);

impl WalkMemory for MixedMemory<'_> {
    fn read(&mut self, at: usize) -> Option<usize> {
        self.0.read(at).or_else(|| self.1.read(at))
    }
}

/// Unwinds from `frame`, leaf first, and stores the frames in `kept`, which has room for both ends.
/// `of` converts a frame to its stored form. `cut` stands for frames that are left out in the
/// middle. Returns the number of stored frames, and whether the stack ends before its outermost
/// frame.
pub(super) fn walk<Frame: Copy>(
    memory: &mut impl WalkMemory,
    frame: CallSite,
    kept: &mut [Frame; 2 * FRAMES_PER_END + 1],
    (of, cut): (impl Fn(FrameCursor) -> Frame, Frame),
    unwinder: Unwinder<'_>,
) -> (usize, bool) {
    let (mut total, mut ends_early) = (0, false);
    let pc = memory.read(frame.slot).filter(|&pc| pc != 0);
    let mut next = pc.map(|pc| FrameCursor {
        slot: frame.slot,
        bp: frame.bp,
        pc: FrameAddress::from_return_address(strip_pointer_authentication(pc) as u64),
    });
    while let Some(cursor) = next {
        // The frames at the leaf's end stay, and those at the root's end go round in a ring behind
        // it.
        let at = if total < FRAMES_PER_END {
            total
        } else {
            FRAMES_PER_END + 1 + (total - FRAMES_PER_END) % FRAMES_PER_END
        };
        kept[at] = of(cursor);
        total += 1;
        if total == MAX_WALK_FRAMES {
            ends_early = true;
            break;
        }
        let rule = unwinder.rule(cursor.pc);
        next = unwinder.step(memory, cursor, rule);
        if next.is_none() {
            // Most stacks end by a rule, and then no more is read.
            ends_early =
                unwinder.ends_early(cursor, rule) && walk::end_word(memory, cursor, rule).is_none();
        }
    }
    if total <= 2 * FRAMES_PER_END {
        kept.copy_within(FRAMES_PER_END + 1.., FRAMES_PER_END);
        return (total, ends_early);
    }
    kept[FRAMES_PER_END] = cut;
    kept[FRAMES_PER_END + 1..].rotate_left((total - FRAMES_PER_END) % FRAMES_PER_END);
    (2 * FRAMES_PER_END + 1, ends_early)
}
