//! The entry points of the program and its loader, and of threads in musl: the outermost code of a
//! thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use heapprof_platform::{sys, weak};

/// Addresses at which the kernel starts a program, in its loader and in the program itself, and at
/// which musl starts main and threads. The code there may have no unwind tables.
#[derive(Debug)]
pub(crate) struct EntryPoints {
    program: AtomicUsize,
    loader: AtomicUsize,
    /// Functions of musl that lie beside those from which main and threads are called.
    musl: [AtomicUsize; 2],
}

/// Smallest length of the code at a program's entry, in bytes.
const PROGRAM_ENTRY_LEN: usize = 34;
/// Smallest length of the code at the loader's entry, up to its jump to the program's entry, in
/// bytes.
const LOADER_ENTRY_LEN: usize = 128;
/// Largest distance between a function of musl and the function beside it, in the same source file,
/// from which main or a thread is called. That function is not exported. Other functions within
/// this distance that call the program's code are `scandir` and `pthread_exit`.
const MUSL_DISTANCE: usize = 1024;
/// Offset of the entry's address in an ELF file's header.
const E_ENTRY: usize = 24;

impl EntryPoints {
    /// Makes entry points that are not known yet.
    pub(crate) const fn new() -> Self {
        Self {
            program: AtomicUsize::new(0),
            loader: AtomicUsize::new(0),
            musl: [const { AtomicUsize::new(0) }; 2],
        }
    }

    /// Finds the entry points. It is called when a recording begins.
    pub(crate) fn find(&self) {
        // SAFETY: the call only reads numbers that the kernel gave the process.
        let [program, base] =
            unsafe { [libc::AT_ENTRY, libc::AT_BASE].map(|kind| libc::getauxval(kind) as usize) };
        self.program.store(program, Ordering::Relaxed);
        for (known, function) in self
            .musl
            .iter()
            .zip(weak::musl_start_functions().into_iter().flatten())
        {
            known.store(function, Ordering::Relaxed);
        }
        let mut entry = [0; 8];
        let at = base.wrapping_add(E_ENTRY);
        if base != 0 && sys::read_memory(at, &mut entry) == entry.len() {
            let entry = base.wrapping_add(usize::from_ne_bytes(entry));
            self.loader.store(entry, Ordering::Relaxed);
        }
    }

    /// Returns the addresses of both entries; 0 stands for an unknown address.
    pub(crate) fn all(&self) -> [usize; 2] {
        [&self.program, &self.loader].map(|entry| entry.load(Ordering::Relaxed))
    }

    /// Whether `pc` is in the code of an entry.
    pub(crate) fn contains(&self, pc: usize) -> bool {
        let holds = |entry: &AtomicUsize, len: usize| match entry.load(Ordering::Relaxed) {
            0 => false,
            entry => pc.wrapping_sub(entry) < len,
        };
        holds(&self.program, PROGRAM_ENTRY_LEN)
            || holds(&self.loader, LOADER_ENTRY_LEN)
            || self.is_musl_start(pc)
    }

    /// Whether `pc` is in a function of musl that calls main or a thread's function.
    pub(crate) fn is_musl_start(&self, pc: usize) -> bool {
        self.musl.iter().any(|function| {
            let function = function.load(Ordering::Relaxed);
            function != 0 && pc.abs_diff(function) < MUSL_DISTANCE
        })
    }
}
