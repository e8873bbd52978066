//! The call site of an allocation, for callers that are Rust functions and not hooks in assembly.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use heapprof_abi::FrameAddress;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::arch::FunctionPosition;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::stack::walk::{CheckedMemory, DirectMemory, FrameCursor, StackBounds, Unwinder};

/// A call site in the program: the address of the hook's return address, and the value of rbp.
#[derive(Clone, Copy, Debug)]
pub struct CallSite {
    /// Address of the return address.
    pub slot: usize,
    /// Value of rbp at the call.
    pub bp: usize,
}

impl CallSite {
    /// Returns the call site of a function's caller. `here` is the
    /// [`current_position`](crate::arch::current_position) in that function, and `unwinder` finds
    /// the caller.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(crate) fn above(here: FunctionPosition, unwinder: Unwinder<'_>) -> Self {
        let FunctionPosition { pc, sp, bp } = here;
        let cursor = FrameCursor {
            slot: sp - 8,
            bp,
            pc: FrameAddress::from_instruction(pc as u64),
        };
        // The page of the stack pointer is mapped. Of others only the kernel knows.
        let mut page = DirectMemory(StackBounds {
            start: sp,
            end: (sp | 4095).wrapping_add(1),
        });
        let rule = unwinder.rule(cursor.pc);
        let caller = unwinder
            .step(&mut page, cursor, rule)
            .or_else(|| unwinder.step(&mut CheckedMemory, cursor, rule));
        match caller {
            Some(caller) => Self {
                slot: caller.slot,
                bp: caller.bp,
            },
            None => Self { slot: sp, bp },
        }
    }
}
