//! Walks the frames of a thread, from the innermost one to the outermost one.

use heapprof_memory::Memory;

use crate::frame::{LocatedPythonFrame, POINTER_MARK_MASK, PythonFrame, version_of};
use crate::interpreter::PythonRuntime;
use crate::layout::{FrameChain, OUTER_OFFSET, PythonLayout, TYPE_OFFSET};
use crate::unchanged_stack;

/// Maximum number of frames that are recorded at each end of a deep stack.
pub const MAX_FRAMES_PER_END: usize = 256;
/// Maximum number of frames that are walked. Without a limit, each allocation in a deep recursion
/// would take time in proportion to the depth, and the whole recursion in proportion to its square.
pub const MAX_WALKED_FRAMES: usize = 4096;

/// Receives the frames of a walk.
pub trait PythonFrameSink {
    /// Receives a frame, with its address `at`. `n` is the number of the frame, counted from the
    /// innermost one. Returns whether the following frames may be exactly the
    /// [`expected`](Self::expected) ones.
    fn put(&mut self, n: usize, at: u64, frame: PythonFrame) -> bool;
    /// Returns the expected callers of the last received frame, the outermost one first. The list
    /// is empty if no frames are expected.
    #[inline(always)]
    fn expected(&self) -> &[LocatedPythonFrame] {
        &[]
    }
    /// Records that all expected frames follow. Returns their number.
    #[inline(always)]
    fn take_expected(&mut self) -> usize {
        0
    }
}

/// The result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonWalkSummary {
    /// The number of frames that were walked.
    pub frames: usize,
    /// Whether all frames were walked, up to the outermost one.
    pub is_whole: bool,
}

impl PythonWalkSummary {
    /// The result of a walk of a stack without frames.
    const NOTHING: Self = Self {
        frames: 0,
        is_whole: true,
    };

    /// Returns the index at which the ring of the oldest frames begins, if frames of a deep stack
    /// were left out. `None` if no frame was left out.
    pub fn cut(&self) -> Option<usize> {
        let oldest = self.frames.checked_sub(MAX_FRAMES_PER_END)?;
        (oldest > MAX_FRAMES_PER_END).then_some(oldest % MAX_FRAMES_PER_END)
    }
}

impl PythonRuntime {
    /// Passes the frames of the thread with this state to `to`. Returns `None` if something can't
    /// be read. If `carefully` is true, also returns `None` for a frame whose code is no code
    /// object.
    #[inline(always)]
    pub fn walk<M: Memory>(
        &self,
        memory: M,
        state: u64,
        carefully: bool,
        to: &mut impl PythonFrameSink,
    ) -> Option<PythonWalkSummary> {
        self.layout.as_constant(
            #[inline(always)]
            |layout| {
                let newest = memory.u64(state + layout.newest)?;
                let walk = PythonStackWalk {
                    memory,
                    layout,
                    code_type: carefully.then_some(self.code_type),
                };
                match layout.chain {
                    FrameChain::Objects => walk.objects(newest, to),
                    FrameChain::Direct => walk.shims(newest, to),
                    FrameChain::Entries | FrameChain::Shims if newest == 0 => {
                        Some(PythonWalkSummary::NOTHING)
                    }
                    FrameChain::Entries => walk.entries(newest, to),
                    FrameChain::Shims => walk.shims(memory.u64(newest + layout.newest_in)?, to),
                }
            },
        )
    }
}

/// Walks the frames of a Python of one version.
struct PythonStackWalk<M> {
    memory: M,
    layout: &'static PythonLayout,
    /// The type that code objects must have; `None` if types are not checked.
    code_type: Option<u64>,
}

impl<M: Memory> PythonStackWalk<M> {
    #[inline(always)]
    fn objects(&self, mut at: u64, to: &mut impl PythonFrameSink) -> Option<PythonWalkSummary> {
        let Self { memory, layout, .. } = *self;
        let mut n = 0;
        while at != 0 && n < MAX_WALKED_FRAMES {
            let fields = [layout.previous, layout.code, layout.instruction];
            let [previous, code, instruction] = memory.fields(at, fields)?;
            // The instruction is a number of 32 bits.
            let place = u64::from(instruction as u32);
            let frame = self.frame(code, place)?;
            let may_be_known = self.put(to, n, at, PythonFrame { entry: 1, ..frame });
            (n, at) = (n + 1, previous);
            if may_be_known && unchanged_stack::objects(memory, layout, at, to.expected()).is_some()
            {
                (n, at) = (n + to.take_expected(), 0);
            }
        }
        Some(PythonWalkSummary {
            frames: n,
            is_whole: at == 0,
        })
    }

    #[inline(always)]
    fn entries(&self, mut outer: u64, to: &mut impl PythonFrameSink) -> Option<PythonWalkSummary> {
        let Self { memory, layout, .. } = *self;
        let mut at = memory.u64(outer + layout.newest_in)?;
        let mut n = 0;
        while at != 0 && n < MAX_WALKED_FRAMES {
            let fields = [layout.previous, layout.code, layout.instruction];
            let [previous, code, place] = memory.fields(at, fields)?;
            let is_entry = memory.u8(at + u64::from(layout.owner))? != 0;
            let mut frame = self.frame(code, place)?;
            if is_entry {
                let next = memory.u64(outer + OUTER_OFFSET)?;
                // The outermost structure is the thread's own, and not on the native stack.
                frame.entry = if next == 0 { 1 } else { outer };
                outer = if next == 0 { outer } else { next };
            }
            let may_be_known = self.put(to, n, at, frame);
            (n, at) = (n + 1, previous);
            if may_be_known
                && unchanged_stack::entries(memory, layout, at, outer, to.expected()).is_some()
            {
                (n, at) = (n + to.take_expected(), 0);
            }
        }
        Some(PythonWalkSummary {
            frames: n,
            is_whole: at == 0,
        })
    }

    #[inline(always)]
    fn shims(&self, mut at: u64, to: &mut impl PythonFrameSink) -> Option<PythonWalkSummary> {
        let Self { memory, layout, .. } = *self;
        let (mut n, mut links) = (0, 0);
        let mut pending: Option<(u64, PythonFrame)> = None;
        while at != 0 && n < MAX_WALKED_FRAMES && links < 4 * MAX_WALKED_FRAMES {
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
            let Some(frame) = self.visible_frame(code & !POINTER_MARK_MASK, place)? else {
                continue;
            };
            if let Some((before_at, before)) = pending.replace((frame_at, frame)) {
                let may_be_known = self.put(to, n, before_at, before);
                n += 1;
                if may_be_known
                    && unchanged_stack::shims(memory, layout, frame_at, to.expected()).is_some()
                {
                    n += to.take_expected();
                    (pending, at) = (None, 0);
                }
            }
        }
        if let Some((at, last)) = pending {
            to.put(n, at, last);
            n += 1;
        }
        Some(PythonWalkSummary {
            frames: n,
            is_whole: at == 0,
        })
    }

    /// Returns a frame of 3.12 or later, or `Some(None)` if the frame is hidden. A hidden frame
    /// only stands for the call of `__init__` by a class. Its code has no lines, and is named like
    /// its file.
    #[inline(always)]
    fn visible_frame(&self, code: u64, place: u64) -> Option<Option<PythonFrame>> {
        let Self { memory, layout, .. } = *self;
        let version = layout.version.unwrap_or(layout.first_line);
        let fields = [version, layout.filename, layout.name];
        let [version, filename, name] = memory.fields(code, fields)?;
        self.is_code(code).then_some(())?;
        let frame = PythonFrame {
            code,
            place,
            version: version as u32,
            entry: 0,
        };
        Some((filename != name).then_some(frame))
    }

    /// Returns a frame of 3.11 or older. The frame's version distinguishes code objects that had
    /// the same address, by the line table, the name, the first line and the file.
    #[inline(always)]
    fn frame(&self, code: u64, place: u64) -> Option<PythonFrame> {
        self.is_code(code).then_some(())?;
        let version = version_of(self.memory, self.layout, code)?;
        Some(PythonFrame {
            code,
            place,
            version,
            entry: 0,
        })
    }

    /// Passes a frame to the sink. Returns whether the walk may skip the following frames, because
    /// the sink expects them. False if the code of frames is checked, because then each frame must
    /// be walked.
    #[inline(always)]
    fn put(&self, to: &mut impl PythonFrameSink, n: usize, at: u64, frame: PythonFrame) -> bool {
        to.put(n, at, frame) && self.code_type.is_none()
    }

    /// Whether `code` is a code object. True if types are not checked.
    #[inline(always)]
    fn is_code(&self, code: u64) -> bool {
        let is_it =
            |of_code| self.memory.u64(code + self.layout.header + TYPE_OFFSET) == Some(of_code);
        self.code_type.is_none_or(is_it)
    }
}

/// Returns the index of frame number `n`, counted from the innermost one, in an array of `2 *
/// MAX_FRAMES_PER_END` frames. The index of each of the newest frames is the frame's number. The
/// oldest frames of a deep stack overwrite each other in a ring at the end of the array.
#[inline(always)]
pub(crate) fn place_of(n: usize) -> usize {
    match n < MAX_FRAMES_PER_END {
        true => n,
        false => MAX_FRAMES_PER_END + (n - MAX_FRAMES_PER_END) % MAX_FRAMES_PER_END,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_stacks_keep_both_ends() {
        let walked = |frames| {
            let is_whole = true;
            PythonWalkSummary { frames, is_whole }.cut()
        };
        assert_eq!(walked(2 * MAX_FRAMES_PER_END), None);
        assert_eq!(walked(2 * MAX_FRAMES_PER_END + 1), Some(1));
        assert_eq!(walked(3 * MAX_FRAMES_PER_END), Some(0));
        assert_eq!(place_of(2 * MAX_FRAMES_PER_END), MAX_FRAMES_PER_END);
        assert_eq!(
            place_of(2 * MAX_FRAMES_PER_END - 1),
            2 * MAX_FRAMES_PER_END - 1
        );
    }
}
