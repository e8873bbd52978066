//! The layout of the thread records in core files of x86-64.

use object::elf::EM_X86_64;

use super::ThreadNoteLayout;

/// The kernel's `elf_prstatus`, with the registers of `user_regs_struct`.
pub(super) const THREAD_NOTE: ThreadNoteLayout = ThreadNoteLayout {
    machine: EM_X86_64.0,
    tid_offset: 32,
    registers_offset: 112,
    register_count: 27,
    stack_pointer: 19,
};
