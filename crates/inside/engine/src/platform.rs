//! What the engine needs from the kernel, the processor and libc: system calls, locks, memory and
//! stacks of its own, and thread-local storage.

pub(crate) mod arena;
pub(crate) mod floating_point;
pub(crate) mod lock;
pub(crate) mod pages;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod stack_switch;
pub(crate) mod status;
pub mod sys;
pub(crate) mod table_file;
pub(crate) mod tls;
pub(crate) mod trial;
pub(crate) mod weak;
