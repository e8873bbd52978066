//! Layouts of the thread records in core files, one for each kind of machine. A core file of any of
//! these machines can be read on any machine.

mod x86_64;

/// The position of a thread's number and registers in the thread's note (`elf_prstatus`).
#[derive(Debug)]
pub(crate) struct ThreadNoteLayout {
    /// Number of the machine in an ELF header.
    pub(crate) machine: u16,
    /// Offset of the thread's number, which has 4 bytes.
    pub(crate) tid_offset: usize,
    /// Offset of the registers, which have 8 bytes each.
    pub(crate) registers_offset: usize,
    /// Number of registers.
    pub(crate) register_count: usize,
    /// Index of the stack pointer among the registers.
    pub(crate) stack_pointer: usize,
}

/// The machines whose core files can be read.
const MACHINES: [&ThreadNoteLayout; 1] = [&x86_64::THREAD_NOTE];

/// Returns the layout of the thread notes in core files of the machine with this ELF number.
pub(crate) fn thread_note(machine: u16) -> Option<&'static ThreadNoteLayout> {
    MACHINES
        .into_iter()
        .find(|layout| layout.machine == machine)
}
