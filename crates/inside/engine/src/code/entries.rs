//! Where the kernel starts the program and its loader: the outermost code of the first thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::platform::sys;

/// Where the kernel starts a program: in its loader, and in the program itself. The code there may
/// have no unwind tables.
#[derive(Debug)]
pub(crate) struct EntryPoints {
    program: AtomicUsize,
    loader: AtomicUsize,
}

/// The code at a program's entry has at least so many bytes.
const PROGRAM_ENTRY_LEN: usize = 34;
/// The same of the loader's, with what it does before it goes to the program's entry.
const LOADER_ENTRY_LEN: usize = 128;
/// Where an ELF file's header says where the kernel is to start it.
const E_ENTRY: usize = 24;

impl EntryPoints {
    /// None is known yet.
    pub(crate) const fn new() -> Self {
        Self {
            program: AtomicUsize::new(0),
            loader: AtomicUsize::new(0),
        }
    }

    /// Asks where they are. It is called when a recording begins.
    pub(crate) fn find(&self) {
        // SAFETY: it reads what the kernel gave the process.
        let [program, base] =
            unsafe { [libc::AT_ENTRY, libc::AT_BASE].map(|kind| libc::getauxval(kind) as usize) };
        self.program.store(program, Ordering::Relaxed);
        let mut entry = [0; 8];
        let at = base.wrapping_add(E_ENTRY);
        if base != 0 && sys::read_memory(at, &mut entry) == entry.len() {
            let entry = base.wrapping_add(usize::from_ne_bytes(entry));
            self.loader.store(entry, Ordering::Relaxed);
        }
    }

    /// The addresses of both, or 0 for what is not known.
    pub(crate) fn all(&self) -> [usize; 2] {
        [&self.program, &self.loader].map(|entry| entry.load(Ordering::Relaxed))
    }

    /// Whether this is code where the kernel starts one of them.
    pub(crate) fn contains(&self, pc: usize) -> bool {
        let holds = |entry: &AtomicUsize, len: usize| match entry.load(Ordering::Relaxed) {
            0 => false,
            entry => pc.wrapping_sub(entry) < len,
        };
        holds(&self.program, PROGRAM_ENTRY_LEN) || holds(&self.loader, LOADER_ENTRY_LEN)
    }
}
