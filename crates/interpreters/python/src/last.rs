//! Remembers a thread's last stack, so that only new frames need to be written.
//!
//! A stack mostly has the same frames as the thread's previous stack, except for the newest frames.
//! A frame is unchanged if its address, code, instruction and entry are equal, and all of its
//! callers are unchanged.

use heapprof_memory::Memory;

use crate::frame::{LocatedPythonFrame, PythonFrame};
use crate::interpreter::PythonRuntime;
use crate::unchanged_stack;
use crate::walk::{MAX_FRAMES_PER_END, PythonFrameSink, PythonWalkSummary, place_of};

/// Maximum number of frames in a stack that is remembered.
const MAX_REMEMBERED_FRAMES: usize = 200;
/// Maximum number of frames of the last stack that are compared with a new frame.
const MAX_SKIPPED_FRAMES: usize = 4;

/// The last stack of a thread. All zeros if there is none.
#[cfg_attr(test, derive(Clone))]
pub struct LastPythonStack {
    /// The number of frames in `seen`; 0 if no stack is remembered.
    len: usize,
    /// The frames of the last stack, the outermost one first.
    seen: [LocatedPythonFrame; MAX_REMEMBERED_FRAMES],
    /// The frames of a new stack that are not in the last one, the innermost one first.
    new: [LocatedPythonFrame; MAX_REMEMBERED_FRAMES],
}

/// Receives the new frames of a stack.
pub trait FramePlaceWriter {
    /// Receives a frame, and its index in an array of all frames. The index is the frame's number,
    /// counted from the innermost frame. In a deep stack, the oldest frames have other indices:
    /// they are in a ring at the end of the array, where they overwrite each other.
    fn write(&mut self, place: usize, frame: PythonFrame);
}

/// The comparison of a new stack with the last stack.
pub struct StackComparison<'a, W> {
    last: &'a mut LastPythonStack,
    to: W,
    /// The number of the last stack's oldest frames that may still be in the new stack.
    left: usize,
    /// The number of the first frame in the current run of unchanged frames; `None` outside of a
    /// run.
    run: Option<usize>,
}

impl LastPythonStack {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self {
            len: 0,
            seen: [LocatedPythonFrame::default(); MAX_REMEMBERED_FRAMES],
            new: [LocatedPythonFrame::default(); MAX_REMEMBERED_FRAMES],
        }
    }

    /// Returns the remembered frames, the outermost one first; none if no stack is remembered.
    #[inline(always)]
    pub(crate) fn frames(&self) -> &[LocatedPythonFrame] {
        self.seen.get(..self.len).unwrap_or_default()
    }

    /// Forgets the stack.
    pub fn forget(&mut self) {
        self.len = 0;
    }

    /// Begins to compare a new stack with this stack. New frames are written to `to`.
    #[inline(always)]
    pub fn compare<W: FramePlaceWriter>(&mut self, to: W) -> StackComparison<'_, W> {
        StackComparison {
            left: self.len,
            last: self,
            to,
            run: None,
        }
    }
}

impl PythonRuntime {
    /// Whether a walk of the thread with this state would return the remembered stack. False if
    /// something can't be read, or if no stack is remembered.
    #[inline(always)]
    pub fn is_unchanged<M: Memory>(&self, memory: M, state: u64, last: &LastPythonStack) -> bool {
        let same = self.layout.as_constant(
            #[inline(always)]
            |layout| unchanged_stack::compare(memory, layout, state, last.frames()),
        );
        same.is_some()
    }
}

impl<W: FramePlaceWriter> PythonFrameSink for StackComparison<'_, W> {
    #[inline(always)]
    fn put(&mut self, n: usize, at: u64, frame: PythonFrame) -> bool {
        let seen = LocatedPythonFrame { at, frame };
        let newest = |left: usize| left.checked_sub(1).and_then(|i| self.last.seen.get(i));
        if self.run.is_some() {
            if newest(self.left) == Some(&seen) {
                self.left -= 1;
                return false;
            }
            self.end_run(n);
        }
        self.search(n, seen);
        self.run.is_some()
    }

    #[inline(always)]
    fn expected(&self) -> &[LocatedPythonFrame] {
        self.last.seen.get(..self.left).unwrap_or_default()
    }

    #[inline(always)]
    fn take_expected(&mut self) -> usize {
        core::mem::take(&mut self.left)
    }
}

impl<W: FramePlaceWriter> StackComparison<'_, W> {
    /// Searches the newest remaining frames of the last stack for `seen`, which is frame number `n`
    /// of the new stack. If `seen` is not among them, writes it as a new frame.
    #[inline(always)]
    fn search(&mut self, n: usize, seen: LocatedPythonFrame) {
        for left in (self.left.saturating_sub(MAX_SKIPPED_FRAMES)..self.left).rev() {
            let Some(known) = self.last.seen.get(left) else {
                break;
            };
            if known.at == seen.at {
                self.left = left;
                if *known == seen {
                    self.run = Some(n);
                    return;
                }
                break;
            }
        }
        self.write(n, seen);
    }

    #[inline(always)]
    fn write(&mut self, n: usize, seen: LocatedPythonFrame) {
        self.to.write(place_of(n), seen.frame);
        if let Some(new) = self.last.new.get_mut(n) {
            *new = seen;
        }
    }

    /// Ends the current run of frames that seemed unchanged, and writes the run's frames, up to
    /// number `n`. They count as changed, because one of their callers has changed.
    #[cold]
    #[inline(never)]
    fn end_run(&mut self, n: usize) {
        let Some(begin) = self.run.take() else { return };
        for i in begin..n {
            if let Some(&seen) = self.last.seen.get(self.left + (n - 1 - i)) {
                self.write(i, seen);
            }
        }
    }

    /// Remembers the new stack. Returns the number of its oldest frames that are unchanged and were
    /// not written.
    #[inline(always)]
    pub fn finish(mut self, walked: Option<PythonWalkSummary>) -> usize {
        let Some(PythonWalkSummary { frames, .. }) = walked else {
            self.last.forget();
            return 0;
        };
        // A deep stack's oldest frames are put in order, so all of them must be written.
        if self.left > 0 || frames > 2 * MAX_FRAMES_PER_END {
            self.end_run(frames);
        }
        let new = self.run.unwrap_or(frames);
        let shared = frames - new;
        if frames > MAX_REMEMBERED_FRAMES {
            self.last.forget();
            return shared;
        }
        let LastPythonStack {
            seen, new: fresh, ..
        } = &mut *self.last;
        for (to, from) in seen[shared..frames].iter_mut().rev().zip(&fresh[..new]) {
            *to = *from;
        }
        self.last.len = frames;
        shared
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    struct FrameList<'a>(&'a mut Vec<PythonFrame>);

    impl FramePlaceWriter for FrameList<'_> {
        fn write(&mut self, place: usize, frame: PythonFrame) {
            if self.0.len() <= place {
                self.0.resize(place + 1, PythonFrame::default());
            }
            self.0[place] = frame;
        }
    }

    /// Compares stacks one after the other, and checks that a reader gets all frames. Each frame is
    /// given by its address and code, the outermost one first. Returns the sum of the numbers of
    /// shared frames.
    fn check(stacks: &[Vec<(u64, u64)>]) -> usize {
        let mut last = LastPythonStack::new();
        // The frames that the reader has, outermost first.
        let mut known: Vec<PythonFrame> = Vec::new();
        let mut all_shared = 0;
        for stack in stacks {
            let frame = |code: u64| PythonFrame {
                code,
                ..PythonFrame::default()
            };
            // Frames that are not written are those of an earlier stack.
            let mut written = std::vec![frame(u64::MAX); stack.len()];
            let mut to = last.compare(FrameList(&mut written));
            for (n, &(at, code)) in stack.iter().rev().enumerate() {
                to.put(n, at, frame(code));
            }
            let walked = PythonWalkSummary {
                frames: stack.len(),
                is_whole: true,
            };
            let shared = to.finish(Some(walked));
            assert!(shared <= known.len() && shared <= stack.len());
            all_shared += shared;
            let new = written[..stack.len() - shared].iter().rev();
            known.truncate(shared);
            known.extend(new);
            let expected: Vec<PythonFrame> = stack.iter().map(|&(_, code)| frame(code)).collect();
            assert_eq!(known, expected, "{stack:?}");
        }
        all_shared
    }

    #[test]
    fn frames_in_common_are_not_written_again() {
        let main = [(10, 1), (20, 2)];
        let table = [
            // The same stack again, and a call.
            (&[&main[..], &main, &[(10, 1), (20, 2), (30, 3)]][..], 4),
            // A return, and another call from the same place.
            (&[&main, &[(10, 1)], &[(10, 1), (20, 3)]], 2),
            // The caller is at another place, or is another one.
            (&[&main, &[(10, 9), (20, 2)]], 0),
            (&[&main, &[(20, 2)]], 0),
            (&[&[(20, 2)], &main], 0),
            // A frame that was left longer ago than is searched.
            (&[&[(10, 1), (20, 2), (30, 3), (40, 4)], &[(10, 1)]], 1),
        ];
        for (stacks, shared) in table {
            let stacks: Vec<Vec<_>> = stacks.iter().map(|stack| stack.to_vec()).collect();
            assert_eq!(check(&stacks), shared, "{stacks:?}");
        }
    }

    #[test]
    fn any_calls_and_returns() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut stack = std::vec![(10, 1)];
        let mut stacks = Vec::new();
        for _ in 0..20_000 {
            for _ in 0..next(4) {
                match next(5) {
                    0 | 1 => stack.push((10 * (stack.len() as u64 + 1), next(3))),
                    2 => stack.truncate(1 + next(stack.len() as u64) as usize),
                    3 => stack.last_mut().unwrap().1 = next(3),
                    _ => {
                        let at = next(stack.len() as u64) as usize;
                        stack[at].1 = next(3);
                    }
                }
            }
            if next(500) == 0 {
                stack.extend((0..next(300)).map(|i| (5000 + i, i)));
            }
            stacks.push(stack.clone());
        }
        assert!(check(&stacks) > 0);
    }
}
