//! Python's stack, read without asking Python: which function, which file, which line.
//!
//! A [`PythonRuntime`] is a CPython as it was found in a process, with the layout of its structures
//! by its minor version, 3.8 to 3.14. [`PythonRuntime::walk`] gives the frames of a thread as
//! numbers, so it can run inside malloc: it allocates nothing, calls nothing of Python's, and takes
//! no lock. [`PythonRuntime::name`] makes names of such frames while the code is still there.
//!
//! Both are generic over [`Memory`](heapprof_memory::Memory). All offsets are those of release
//! builds with the GIL, on processors with 64 bits. Builds without the GIL and debug builds have
//! others, so [`PythonRuntime::find`] refuses them.
//!
//! It must never know malloc, profiles or SQLite.
//!
//! * `layout.rs`: offsets by version.
//! * `interpreter.rs`: finding a Python, and how to know which thread runs it.
//! * `frame.rs`: a frame as numbers.
//! * `walk.rs`: from the innermost frame to the outermost one.
//! * `last.rs`: what a stack has in common with the last one.
//! * `unchanged.rs`: whether it is the last one.
//! * `line.rs`: the line of an instruction.
//! * `name.rs`: the name, the file and the lines of a frame.
//! * `cell.rs`: what a notebook's cell is called.
//! * `dictionary.rs`: looking up a text in a dictionary.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod cell;
mod dictionary;
mod frame;
mod interpreter;
mod last;
mod layout;
mod line;
mod name;
mod unchanged;
mod walk;

pub use cell::is_cell;
pub use frame::{LocatedPythonFrame, PythonFrame};
pub use interpreter::{
    CurrentThreadState, PythonRuntime, PythonVersion, ThreadLocal, UnreadablePython,
};
pub use last::{FramePlaceWriter, LastPythonStack, StackComparison};
pub use line::LineTableProgress;
pub use name::NamedPythonFrame;
pub use walk::{MAX_FRAMES_PER_END, MAX_WALKED_FRAMES, PythonFrameSink, PythonWalkSummary};
