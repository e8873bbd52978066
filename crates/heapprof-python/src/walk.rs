//! The frames of a thread, from the innermost one to the outermost one.

use heapprof_memory::Memory;

use crate::interpreter::Python;
use crate::layout::{Chain, HASH, OUTER, TYPE};

/// A frame as numbers. Equal frames are the same place in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The code object.
    pub code: u64,
    /// The instruction in it.
    pub place: u64,
    /// It differs if other code has come to the same address.
    pub version: u32,
    /// 0, or where on the native stack the evaluator was entered for this frame; 1 if it was
    /// entered there, but the place is not known.
    pub entry: u64,
}

/// How many frames of each end of a deep stack are kept.
pub const EACH_END: usize = 256;
/// How many frames are walked. An allocation would take as long as its stack is deep, and a deep
/// recursion as long as the square of its depth.
pub const MOST_FRAMES: usize = 4096;

/// Where frames go.
pub trait Frames {
    /// Takes the `n`th frame from the innermost one, which lies at an address.
    fn put(&mut self, n: usize, at: u64, frame: Frame);
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// How many frames there are, or how many were walked.
    pub frames: usize,
    /// Whether the outermost frame was reached.
    pub is_whole: bool,
}

impl Walked {
    /// A stack without frames.
    const NOTHING: Self = Self {
        frames: 0,
        is_whole: true,
    };

    /// How many frames were kept of a deep stack's oldest end, and in which of their places the
    /// first of them is; `None` if all frames lie in order.
    pub fn cut(&self) -> Option<usize> {
        let oldest = self.frames.checked_sub(EACH_END)?;
        (oldest > EACH_END).then_some(oldest % EACH_END)
    }
}

impl Python {
    /// Gives the frames of the thread with this state. `None` if something can't be read, or, where
    /// `carefully` says so, if a frame's code is no code object.
    #[inline(always)]
    pub fn walk<M: Memory>(
        &self,
        memory: M,
        state: u64,
        carefully: bool,
        to: &mut impl Frames,
    ) -> Option<Walked> {
        let layout = self.layout;
        let newest = memory.u64(state + layout.newest)?;
        match layout.chain {
            Chain::Objects => self.walk_objects(memory, newest, carefully, to),
            Chain::Direct => self.walk_shims(memory, newest, carefully, to),
            Chain::Entries | Chain::Shims if newest == 0 => Some(Walked::NOTHING),
            Chain::Entries => self.walk_entries(memory, newest, carefully, to),
            Chain::Shims => {
                let frame = memory.u64(newest + layout.newest_in)?;
                self.walk_shims(memory, frame, carefully, to)
            }
        }
    }

    fn walk_objects<M: Memory>(
        &self,
        memory: M,
        mut at: u64,
        carefully: bool,
        to: &mut impl Frames,
    ) -> Option<Walked> {
        let layout = self.layout;
        let mut n = 0;
        while at != 0 && n < MOST_FRAMES {
            let fields = [layout.previous, layout.code, layout.instruction];
            let [previous, code, instruction] = memory.fields(at, fields)?;
            // It is a number of 32 bits.
            let place = u64::from(instruction as u32);
            let frame = self.frame(memory, code, place, carefully)?;
            to.put(n, at, Frame { entry: 1, ..frame });
            (n, at) = (n + 1, previous);
        }
        Some(Walked {
            frames: n,
            is_whole: at == 0,
        })
    }

    fn walk_entries<M: Memory>(
        &self,
        memory: M,
        mut outer: u64,
        carefully: bool,
        to: &mut impl Frames,
    ) -> Option<Walked> {
        let layout = self.layout;
        let mut at = memory.u64(outer + layout.newest_in)?;
        let mut n = 0;
        while at != 0 && n < MOST_FRAMES {
            let fields = [layout.previous, layout.code, layout.instruction];
            let [previous, code, place] = memory.fields(at, fields)?;
            let is_entry = memory.u8(at + u64::from(layout.owner))? != 0;
            let mut frame = self.frame(memory, code, place, carefully)?;
            if is_entry {
                let next = memory.u64(outer + OUTER)?;
                // The outermost one is the thread's own, and not on the native stack.
                frame.entry = if next == 0 { 1 } else { outer };
                outer = if next == 0 { outer } else { next };
            }
            to.put(n, at, frame);
            (n, at) = (n + 1, previous);
        }
        Some(Walked {
            frames: n,
            is_whole: at == 0,
        })
    }

    #[inline(always)]
    fn walk_shims<M: Memory>(
        &self,
        memory: M,
        mut at: u64,
        carefully: bool,
        to: &mut impl Frames,
    ) -> Option<Walked> {
        /// Low bits of a pointer to code are a mark from 3.14 on.
        const MARK: u64 = 3;
        let layout = self.layout;
        let (mut n, mut links) = (0, 0);
        let mut pending: Option<(u64, Frame)> = None;
        while at != 0 && n < MOST_FRAMES && links < 4 * MOST_FRAMES {
            let fields = [layout.previous, layout.code, layout.instruction];
            let [previous, code, place] = memory.fields(at, fields)?;
            let owner = memory.u8(at + u64::from(layout.owner))?;
            links += 1;
            let frame_at = core::mem::replace(&mut at, previous);
            if owner >= layout.shim {
                if owner == layout.shim
                    && let Some((_, pending)) = &mut pending
                    && pending.entry == 0
                {
                    pending.entry = frame_at;
                }
                continue;
            }
            let Some(frame) = self.shown(memory, code & !MARK, place, carefully)? else {
                continue;
            };
            if let Some((at, before)) = pending.replace((frame_at, frame)) {
                to.put(n, at, before);
                n += 1;
            }
        }
        if let Some((at, last)) = pending {
            to.put(n, at, last);
            n += 1;
        }
        Some(Walked {
            frames: n,
            is_whole: at == 0,
        })
    }

    /// A frame of 3.12 or later; `Some(None)` if it stands for a call only: between a class and its
    /// `__init__` there is code without lines, whose name is its file's.
    #[inline(always)]
    fn shown<M: Memory>(
        &self,
        memory: M,
        code: u64,
        place: u64,
        carefully: bool,
    ) -> Option<Option<Frame>> {
        let layout = self.layout;
        let version = layout.version.unwrap_or(layout.first_line);
        let fields = [version, layout.filename, layout.name];
        let [version, filename, name] = memory.fields(code, fields)?;
        if carefully && memory.u64(code + TYPE)? != self.code_type {
            return None;
        }
        let frame = Frame {
            code,
            place,
            version: version as u32,
            entry: 0,
        };
        Some((filename != name).then_some(frame))
    }

    /// A frame up to 3.11. Another code object at the same address has another table of lines,
    /// another name, or another first line.
    #[inline(always)]
    fn frame<M: Memory>(&self, memory: M, code: u64, place: u64, carefully: bool) -> Option<Frame> {
        let layout = self.layout;
        let fields = [layout.line_table, layout.name, layout.first_line];
        let [table, name, first] = memory.fields(code, fields)?;
        if carefully && memory.u64(code + TYPE)? != self.code_type {
            return None;
        }
        let hash = memory.u64(name + HASH)?;
        let mix = |a: u64, b: u64| (a ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        let version = mix(mix(mix(table, name), u64::from(first as u32)), hash);
        Some(Frame {
            code,
            place,
            version: (version >> 32) as u32,
            entry: 0,
        })
    }
}

/// The place of the `n`th frame from the innermost one, below `2 * EACH_END`: the newest ones by
/// their number, the oldest ones of a deep stack in the place of older ones, in turns.
#[inline(always)]
pub(crate) fn place_of(n: usize) -> usize {
    match n < EACH_END {
        true => n,
        false => EACH_END + (n - EACH_END) % EACH_END,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_stacks_keep_both_ends() {
        let walked = |frames| {
            let is_whole = true;
            Walked { frames, is_whole }.cut()
        };
        assert_eq!(walked(2 * EACH_END), None);
        assert_eq!(walked(2 * EACH_END + 1), Some(1));
        assert_eq!(walked(3 * EACH_END), Some(0));
        assert_eq!(place_of(2 * EACH_END), EACH_END);
        assert_eq!(place_of(2 * EACH_END - 1), 2 * EACH_END - 1);
    }
}
