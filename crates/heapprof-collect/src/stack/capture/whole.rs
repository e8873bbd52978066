//! Walks a stack from end to end, without regard to the last one, and leaves out the middle of a
//! deep one.

use super::{ENDLESS, KEPT};
use crate::stack::call_site::CallSite;
use crate::stack::walk::{self, Cursor, Direct, Foreign, Memory, Unwinder};

/// Reads the thread's own stack directly, and other memory with the kernel's checks: a signal frame
/// leads elsewhere.
pub(super) struct Mixed<'a>(pub(super) Direct, pub(super) &'a mut Foreign);

impl Memory for Mixed<'_> {
    fn read(&mut self, at: usize) -> Option<usize> {
        self.0.read(at).or_else(|| self.1.read(at))
    }
}

/// Unwinds from `frame`, leaf first, into `kept`, which has room for both ends. `of` makes of a
/// frame what is kept of it, and `cut` stands for the middle. Returns how much of it was filled,
/// and whether the stack ends before its outermost frame.
pub(super) fn walk<Frame: Copy>(
    memory: &mut impl Memory,
    frame: CallSite,
    kept: &mut [Frame; 2 * KEPT + 1],
    (of, cut): (impl Fn(Cursor) -> Frame, Frame),
    unwinder: Unwinder<'_>,
) -> (usize, bool) {
    let (mut total, mut ends_early) = (0, false);
    let pc = memory.read(frame.slot).filter(|&pc| pc != 0);
    let mut next = pc.map(|pc| Cursor {
        slot: frame.slot,
        bp: frame.bp,
        pc,
    });
    while let Some(cursor) = next {
        // The leaf's end stays, the root's goes round in a ring behind it.
        let at = if total < KEPT {
            total
        } else {
            KEPT + 1 + (total - KEPT) % KEPT
        };
        kept[at] = of(cursor);
        total += 1;
        if total == ENDLESS {
            ends_early = true;
            break;
        }
        let rule = unwinder.rule(cursor.pc);
        next = unwinder.step(memory, cursor, rule);
        if next.is_none() {
            // Most stacks end by a rule, and nothing more is asked then.
            ends_early =
                unwinder.ends_early(cursor, rule) && walk::end_word(memory, cursor, rule).is_none();
        }
    }
    if total <= 2 * KEPT {
        kept.copy_within(KEPT + 1.., KEPT);
        return (total, ends_early);
    }
    kept[KEPT] = cut;
    kept[KEPT + 1..].rotate_left((total - KEPT) % KEPT);
    (2 * KEPT + 1, ends_early)
}
