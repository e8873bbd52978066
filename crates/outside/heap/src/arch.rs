//! What a core file has of each thread, by the machine that wrote it. Such a file is read on any
//! machine.

mod x86_64;

/// Where a thread's number and registers are in its note (`elf_prstatus`).
#[derive(Debug)]
pub(crate) struct ThreadNoteLayout {
    /// Number of the machine in an ELF header.
    pub(crate) machine: u16,
    /// Offset of the thread's number, of 4 bytes.
    pub(crate) tid_offset: usize,
    /// Offset of the registers, of 8 bytes each.
    pub(crate) registers_offset: usize,
    /// Number of registers.
    pub(crate) register_count: usize,
    /// Index of the stack pointer among the registers.
    pub(crate) stack_pointer: usize,
}

/// The machines whose core files can be read.
const MACHINES: [&ThreadNoteLayout; 1] = [&x86_64::THREAD_NOTE];

/// Returns the layout of threads' notes in core files of a machine.
pub(crate) fn thread_note(machine: u16) -> Option<&'static ThreadNoteLayout> {
    MACHINES
        .into_iter()
        .find(|layout| layout.machine == machine)
}
