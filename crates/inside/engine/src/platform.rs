//! What the engine asks of the kernel, the processor and libc: system calls, locks, memory of its
//! own, stacks to switch to, thread-local storage.

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
