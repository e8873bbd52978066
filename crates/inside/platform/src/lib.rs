//! The services of the kernel, the processor and libc for code inside a profiled program: system
//! calls, locks, memory and stacks of its own, and thread-local storage.
//!
//! This code does not depend on what is recorded. It may run in the middle of the program's malloc,
//! in a signal handler, or between fork and exec. So it preserves errno, calls no function that the
//! program may have replaced, and takes no lock of libc.
//!
//! * `sys`: system calls, made directly ([`sys::call`]).
//! * `lock`: locks that wait in the kernel, each with a rank in its type.
//! * `pages`, `table_file`: the memory of tables, private or in a file that outlives the process.
//! * `arena`: an allocator over private mappings.
//! * `tls`: the thread's slot.
//! * `stack_switch`: a stack to change to.
//! * `arch`: the code that depends on the processor.
//! * `weak`: functions that not every libc has.
//! * `loader`: the loader's list of loaded objects.
//! * `maps`: the kernel's list of mappings.
//! * `program`, `status`, `trial`: the program's name, facts about the process from /proc, and
//!   whether the process would survive a filter of system calls.
//! * `atomic`: the standard atomic types, or those of a model test.

#![allow(
    clippy::new_without_default,
    reason = "these are made in statics, where no Default can be called"
)]

pub mod arch;
pub mod arena;
pub mod atomic;
pub mod loader;
pub mod lock;
pub mod maps;
pub mod pages;
pub mod program;
pub mod stack_switch;
pub mod status;
pub mod sys;
pub mod table_file;
pub mod tls;
pub mod trial;
pub mod weak;
