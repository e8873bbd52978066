//! Looks into a process or a core file from outside, with all instruments at once.
//!
//! A [`WalkTarget`] is the process or the core file: its memory, and the names of its code and
//! data. [`blocks_profile()`] makes a profile of the blocks of its heap. [`process_answer`],
//! [`core_answer`] and [`profile_answer()`] say where all of a program's memory is.
#![forbid(unsafe_code)]
// The rules are for programs. Tests write where nobody else does.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod blocks_profile;
pub mod has_perl;
mod memory_answer;
mod memory_division;
pub mod named_process;
mod part_holders;
mod perl_heap;
mod profile_answer;
mod program_file;
mod python_pools;
mod recorded_functions;
mod target;
mod words;

pub use self::blocks_profile::{BlocksProfile, MissingStacks, blocks_profile};
pub use self::memory_answer::{ProcessAnswer, UnseenMemory, core_answer, process_answer};
pub use self::perl_heap::{PerlFileError, PerlHeapOrigin, PerlHeapReading, PerlProgramError};
pub use self::profile_answer::profile_answer;
pub use self::program_file::ProgramFile;
pub use self::target::{ProcessHold, WalkTarget, WalkTargetKind, is_same};
