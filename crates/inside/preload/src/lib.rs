//! `libheapprof.so`: replaces malloc and its family by hooks in any program, through `LD_PRELOAD`
//! or by linking.
//!
//! The hooks decide in a handful of instructions whether to record an allocation. heapprof-engine
//! does all other work. The library does not change what the program does. It prints nothing,
//! except reports that the user has requested, and errors about requests that it can't fulfill.

// Exported functions are for C, and documented in include/heapprof.h.
#![allow(clippy::missing_safety_doc, unreachable_pub, missing_docs)]

mod allocator;
mod api;
mod atfork;
mod attach;
mod end;
mod entry_hooks;
mod environment;
mod exec_check;
mod family;
mod fast_path;
mod fork;
mod hook;
mod identity;
mod imports;
mod known_file;
mod late_start;
mod ledger_hooks;
mod loader_objects;
mod loader_release;
mod mark;
mod messages;
mod mmap_hooks;
mod operators;
mod other_root;
mod own_variables;
mod program_file;
mod real_functions;
mod sandbox;
mod signals;
mod start;
mod start_state;
mod thread_local;
mod unwinder;
mod wiretap;

#[global_allocator]
static MEMORY: heapprof_engine::EngineMemory = heapprof_engine::ENGINE.memory();
