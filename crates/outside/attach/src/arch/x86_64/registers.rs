//! A stopped thread's registers in three forms: as ptrace reads and writes them, as an attach
//! letter lists them, and as a walk of the thread's calls needs them.

use gimli::{Register, X86_64};
use heapprof_abi::letter::REGISTER_COUNT;
use libc::user_regs_struct;

use super::SYSTEM_CALL;

/// The registers of a stopped thread.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct ThreadRegisters(user_regs_struct);

/// A system call in which a thread was stopped.
pub(crate) struct StoppedCall {
    /// The call's number.
    pub(crate) number: i64,
    /// The call's result. It may be one of the kernel's internal values, which programs never see.
    pub(crate) result: i64,
}

#[cfg(test)]
impl From<user_regs_struct> for ThreadRegisters {
    fn from(registers: user_regs_struct) -> Self {
        Self(registers)
    }
}

impl ThreadRegisters {
    /// Returns registers that are all zero.
    pub(crate) fn zeroed() -> Self {
        // SAFETY: the structure has only numbers, for which zero is a valid value.
        Self(unsafe { std::mem::zeroed() })
    }

    /// Returns the address of the thread's next instruction, and its stack pointer.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.0.rip, self.0.rsp)
    }

    /// Sets the address of the thread's next instruction.
    pub(crate) fn set_next_instruction(&mut self, at: u64) {
        self.0.rip = at;
    }

    /// Returns the system call in which the thread was stopped; `None` if it was stopped elsewhere.
    pub(crate) fn stopped_call(&self) -> Option<StoppedCall> {
        let number = self.0.orig_rax as i64;
        (number >= 0).then_some(StoppedCall {
            number,
            result: self.0.rax as i64,
        })
    }

    /// Returns the first argument of the system call in which the thread was stopped.
    pub(crate) fn first_argument(&self) -> u64 {
        self.0.rdi
    }

    /// Returns the registers with which the thread resumes its own code. With `again`, the thread
    /// makes this system call first.
    pub(crate) fn on_resume(&self, again: Option<i64>) -> Self {
        let mut registers = self.0;
        if let Some(number) = again {
            registers.rax = number as u64;
            registers.rip -= SYSTEM_CALL.len() as u64;
        }
        registers.orig_rax = u64::MAX;
        Self(registers)
    }

    /// Returns the registers in the order in which an attach letter lists them.
    pub(crate) fn in_letter(&self) -> [u64; REGISTER_COUNT] {
        let r = &self.0;
        [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15, r.rip, r.eflags,
        ]
    }

    /// Returns the registers with which the thread makes the system call `number`, by the
    /// instruction at `at`.
    pub(crate) fn for_call(&self, at: u64, number: i64, args: [u64; 6]) -> Self {
        let [rdi, rsi, rdx, r10, r8, r9] = args;
        Self(user_regs_struct {
            rax: number as u64,
            rip: at,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.0
        })
    }

    /// Returns the result of the system call that the thread has just made.
    pub(crate) fn call_result(&self) -> i64 {
        self.0.rax as i64
    }

    /// Returns the registers with which the thread runs the stub at `at`, on the stack that ends at
    /// `stack`, with the letter at `letter`.
    pub(crate) fn for_stub(&self, at: u64, stack: u64, letter: u64) -> Self {
        Self(user_regs_struct {
            rip: at,
            rsp: stack,
            rbx: letter,
            orig_rax: u64::MAX,
            // No single-stepping, and string instructions go upwards.
            eflags: self.0.eflags & !0x500,
            ..self.0
        })
    }
}

/// Maximum number of bytes of a call instruction.
pub(crate) const MAX_CALL_LEN: usize = 7;

/// Whether code may end with a call instruction.
pub(crate) fn may_end_with_call(code: [u8; MAX_CALL_LEN]) -> bool {
    const DIRECT_CALL: u8 = 0xe8;
    const INDIRECT_CALL: u8 = 0xff;
    /// The field of the second byte that tells a call from the other instructions of the group.
    const CALL_FIELD: u8 = 2;
    let pairs = code.windows(2);
    let mut indirect =
        pairs.filter(|pair| pair[0] == INDIRECT_CALL && pair[1] >> 3 & 7 == CALL_FIELD);
    code[MAX_CALL_LEN - 5] == DIRECT_CALL || indirect.next().is_some()
}

/// The column of an unwinding table that has the location of the return address.
pub(crate) const RETURN_ADDRESS: Register = X86_64::RA;

/// A thread's position, and the registers that a call preserves.
#[derive(Clone, Copy)]
pub(crate) struct UnwoundRegisters {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    /// The values are `None` if they are not known.
    pub(crate) saved_registers: [(Register, Option<u64>); 6],
}

impl UnwoundRegisters {
    /// Takes the registers of a thread's newest call from the registers that an attach letter
    /// lists.
    pub(crate) fn from_letter(registers: &[u64]) -> Self {
        Self {
            pc: registers[16],
            sp: registers[7],
            saved_registers: [
                (X86_64::RBX, Some(registers[1])),
                (X86_64::RBP, Some(registers[6])),
                (X86_64::R12, Some(registers[12])),
                (X86_64::R13, Some(registers[13])),
                (X86_64::R14, Some(registers[14])),
                (X86_64::R15, Some(registers[15])),
            ],
        }
    }

    /// Returns the position of a call of which only the return address and the stack pointer are
    /// known.
    pub(crate) fn at_return(pc: u64, sp: u64) -> Self {
        let mut position = Self::from_letter(&[0; REGISTER_COUNT]);
        (position.pc, position.sp) = (pc, sp);
        for (_, value) in &mut position.saved_registers {
            *value = None;
        }
        position
    }

    /// Returns the value of a register that a call preserves; `None` for any other register.
    pub(crate) fn value(&self, register: Register) -> Option<u64> {
        match register {
            X86_64::RSP => Some(self.sp),
            other => self
                .saved_registers
                .iter()
                .find(|kept| kept.0 == other)
                .and_then(|kept| kept.1),
        }
    }
}
