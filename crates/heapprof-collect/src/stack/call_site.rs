//! Where an allocation is called from, for callers that are Rust functions and not hooks in
//! assembly.

#[cfg(target_arch = "x86_64")]
use crate::apart;
#[cfg(target_arch = "x86_64")]
use crate::stack::walk::{self, Bounds, Checked, Cursor, Direct};

/// Where the program called: the hook's return address, and rbp.
#[derive(Clone, Copy, Debug)]
pub struct CallSite {
    /// Address of the return address.
    pub slot: usize,
    /// rbp at the call.
    pub bp: usize,
}

impl CallSite {
    /// The frame that called the function this is inlined into.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn caller() -> Self {
        let (pc, sp, bp): (usize, usize, usize);
        // SAFETY: reads three registers.
        unsafe {
            std::arch::asm!(
                "lea {pc}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
                pc = out(reg) pc, sp = out(reg) sp, bp = out(reg) bp,
                options(nomem, nostack, preserves_flags));
        }
        Self::above(pc, sp, bp)
    }

    /// On other processors no stack is found, and samples have an empty one.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub fn caller() -> Self {
        Self { slot: 0, bp: 0 }
    }

    #[cfg(target_arch = "x86_64")]
    fn above(pc: usize, sp: usize, bp: usize) -> Self {
        let cursor = Cursor {
            slot: sp - 8,
            bp,
            pc: pc + 1,
        };
        // The page that the stack pointer is on is there. Only the kernel knows of others.
        let mut page = Direct(Bounds {
            start: sp,
            end: (sp | 4095).wrapping_add(1),
        });
        // Finding a rule that is not known yet may allocate, from the allocator that asks for this
        // frame.
        let caller = apart::apart(|| {
            let rule = walk::rule(cursor.pc);
            walk::step(&mut page, cursor, rule).or_else(|| walk::step(&mut Checked, cursor, rule))
        });
        match caller {
            Some(caller) => Self {
                slot: caller.slot,
                bp: caller.bp,
            },
            None => Self { slot: sp, bp },
        }
    }
}
