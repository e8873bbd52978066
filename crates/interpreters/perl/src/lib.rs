//! Reads Perl's stack without asking Perl: the sub, the file and the line of each frame.
//!
//! A [`PerlRuntime`] is an interpreter's library that was found in a process, with the
//! [`PerlLayout`] of the structures in its exact version. [`PerlRuntime::walk`] returns the frames
//! of a stack as numbers, so it can run inside malloc: it allocates nothing, calls no Perl
//! function, and takes no lock. [`PerlRuntime::name`] returns the name of a frame, as long as the
//! frame's code exists.
//!
//! Both functions are generic over [`Memory`](heapprof_memory::Memory), so they also work on
//! another process or on a core file. The layouts come from perls of all versions (`layouts.tsv`),
//! and are for x86-64 and other processors with the same sizes of types.
//!
//! This crate must not depend on malloc, profiles or SQLite.
//!
//! * `layout.rs`: sizes, offsets and numbers by version.
//! * `interpreter.rs`: finding a perl, its layout, and the addresses of its variables.
//! * `frame.rs`: a frame as numbers, and as text.
//! * `context.rs`: Perl's records of the subs, evals and blocks that are running.
//! * `walk.rs`, `deep_stack.rs`: walking from the innermost frame to the outermost one, and from
//!   the root of a deep stack.
//! * `last.rs`, `unchanged_stack.rs`: the parts of a stack that a thread's next walk can skip.
//! * `arenas.rs`: the memory that values are taken from, and how much of it is used.
//! * `sv.rs`: the types and the flags of values.
//! * `values.rs`: the type, the class and the size of a value.
//! * `value_memory.rs`: the parts of arenas and the blocks that belong to each value.
//! * `name.rs`: the name, file and line of a frame.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod arenas;
mod context;
mod deep_stack;
mod frame;
mod interpreter;
mod last;
mod layout;
mod name;
pub mod sv;
mod unchanged_stack;
mod value_memory;
mod values;
mod walk;

pub use arenas::{ARENA_SIZE_RANGE, ArenaType, ArenaTypeUsage, ArenaUsage, FreeLists, may_be_slab};
pub use context::MAX_FRAMES_PER_END;
pub use frame::{BoundedText, NamedPerlFrame, PerlFrame, PerlFrameKind};
pub use interpreter::{ContextLayout, InterpreterLocator, PerlRuntime, UnreadablePerl, XsubCall};
pub use last::LastWalk;
pub use layout::{PerlLayout, PerlVersion, column_of, parse_number};
pub use value_memory::PerlValueMemory;
pub use values::{
    BODY_WORDS, HEAD_BYTES, SvBody, SvBufferKind, SvHead, TYPE_NAMES, buffer_of, class_of,
    sharers_of,
};
pub use walk::{PerlFrameSink, PerlWalkSummary};
