//! Loads `libheapprof.so` into a running program, and disables it again.
//!
//! One thread of the program is stopped by ptrace, at an instruction where it has taken no lock
//! that loading needs. The thread maps a region, and is resumed. The stub and the library are
//! written into the region, and the thread is diverted to the stub. There it loads the library, and
//! then resumes its work. The loaded library prepares hooks for the entries of allocators. Then all
//! threads are stopped for a moment, and jumps to the hooks are written. If the program's code
//! can't be written, the library redirects the program's slots (pointers to functions of malloc).
//! docs/dev/attach.md explains the purpose of each step.
//!
//! The program's data is not trusted. This crate must not depend on reports, SQLite or the command
//! line.

mod attach_options;
mod error;

#[cfg(target_arch = "x86_64")]
mod arch;
#[cfg(target_arch = "x86_64")]
mod c_library;
#[cfg(target_arch = "x86_64")]
mod child_process;
#[cfg(target_arch = "x86_64")]
mod choice;
#[cfg(target_arch = "x86_64")]
mod entries;
#[cfg(target_arch = "x86_64")]
mod filter;
#[cfg(all(test, target_arch = "x86_64"))]
mod fixture;
#[cfg(target_arch = "x86_64")]
mod late_library;
#[cfg(target_arch = "x86_64")]
mod loader_functions;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod musl;
#[cfg(target_arch = "x86_64")]
mod process;
#[cfg(target_arch = "x86_64")]
mod process_file;
#[cfg(target_arch = "x86_64")]
mod program_file;
#[cfg(target_arch = "x86_64")]
mod region;
#[cfg(target_arch = "x86_64")]
mod signal_frames;
#[cfg(target_arch = "x86_64")]
mod suspended_thread;
#[cfg_attr(not(target_arch = "x86_64"), path = "elsewhere.rs")]
mod target;
#[cfg(target_arch = "x86_64")]
mod thread;
#[cfg(target_arch = "x86_64")]
mod unwind;

pub use attach_options::{AttachOptions, AttachOutcome, DetachOutcome, SlotsReason};
pub use error::AttachError;
#[cfg(target_arch = "x86_64")]
pub use suspended_thread::SuspendedThread;
pub use target::AttachTarget;

/// Whether the file of a process's program shows that the process can't be attached to: it is
/// linked statically, for example. False if there is no such reason, or if the file can't be read.
#[cfg(target_arch = "x86_64")]
pub fn is_refused(pid: u32) -> bool {
    let program = program_file::ProgramFile::read(pid);
    program.is_ok_and(|program| program.refusal().is_some())
}

/// Whether a process can't be attached to. No process can on this machine.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_refused(_pid: u32) -> bool {
    true
}
