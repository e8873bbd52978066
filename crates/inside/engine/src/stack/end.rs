//! Determines whether a stack ends at the outermost frame of a thread or early, and the reason for
//! an early end.
//!
//! A complete stack ends at a frame that has no caller by its unwind table, at a return address
//! that is zero, or where the kernel started the program or its loader. Any other end is early:
//! frames are missing. A profile counts such stacks by file.

use heapprof_abi::{FrameAddress, stack_end};
use heapprof_platform::sys;

use crate::arch::{UnwindRule, UnwindRuleKind};
use crate::code::cfi;
use crate::stack::walk::{FrameCursor, Unwinder};

impl Unwinder<'_> {
    /// Whether a stack ends early at the frame `oldest`, for which no caller was found. The frame's
    /// return address is not zero.
    #[inline(always)]
    pub(crate) fn ends_early(self, oldest: FrameCursor, rule: UnwindRule) -> bool {
        match rule.kind() {
            // An address in the first page is no code, and has this rule for lack of another.
            UnwindRuleKind::End => oldest.pc.to_word() < sys::PAGE_SIZE as u64,
            _ => {
                let address = oldest.pc.lookup_address() as usize;
                !self.code.entries.contains(address)
            }
        }
    }

    /// Returns the reason why a stack with these two oldest frames ends early.
    #[cold]
    pub(crate) fn reason_of_end(self, oldest: FrameAddress, callee: Option<FrameAddress>) -> u32 {
        if let Some(reason) = self.reason_in_file(oldest) {
            return reason;
        }
        // A frame pointer may have led to any word.
        let guessed =
            |&callee: &FrameAddress| self.rule(callee).kind() == UnwindRuleKind::FramePointer;
        let callee = callee
            .filter(guessed)
            .and_then(|pc| self.reason_in_file(pc));
        match callee {
            Some(reason) => reason | stack_end::CALLEE_FLAG,
            None => stack_end::NO_FILE,
        }
    }

    /// Returns the reason why a walk has ended at a frame; `None` if the frame's code is in no
    /// file.
    fn reason_in_file(self, frame: FrameAddress) -> Option<u32> {
        if frame.is_zero() {
            return None;
        }
        let pc = frame.lookup_address() as usize;
        let module = self.code.modules.find(self.process, pc)?;
        Some(match cfi::has_tables(&module) {
            false => stack_end::NO_TABLES,
            true if cfi::covers(&module, pc) => stack_end::NO_CALLER,
            true => stack_end::NOT_COVERED,
        })
    }
}
