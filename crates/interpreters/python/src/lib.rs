//! Reads Python's stack without asking Python: the function, the file and the line of each frame.
//!
//! A [`PythonRuntime`] is a CPython that was found in a process, with the layout of the structures
//! in its minor version (3.8 to 3.14). [`PythonRuntime::walk`] returns the frames of a thread as
//! numbers, so it can run inside malloc: it allocates nothing, calls no Python function, and takes
//! no lock. [`PythonRuntime::name`] returns the name of a frame, as long as the frame's code
//! exists.
//!
//! Both functions are generic over [`Memory`](heapprof_memory::Memory). The offsets are those of
//! release builds on processors with 64 bits, for 3.13 and 3.14 also of builds without the GIL.
//! Debug builds and builds with options that change structures have other offsets, so
//! [`PythonRuntime::find`] refuses them.
//!
//! This crate must not depend on malloc, profiles or SQLite.
//!
//! * `layout.rs`: offsets by version.
//! * `interpreter.rs`: finding a Python, and the thread that runs it.
//! * `frame.rs`: a frame as numbers.
//! * `walk.rs`: walking from the innermost frame to the outermost one.
//! * `last.rs`: the frames that a stack has in common with the last one.
//! * `unchanged_stack.rs`: checking whether a stack is the same as the last one.
//! * `line.rs`: the line of an instruction.
//! * `name.rs`: the name, the file and the lines of a frame.
//! * `cell.rs`: the name of a notebook's cell.
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
mod unchanged_stack;
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
