//! Provides the texts of Python's frames, and the reasons why frames are missing.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use heapprof_engine::{NamedFrame, RawFrame};
use heapprof_memory::OwnMemory;
use heapprof_python::{LineTableProgress, NamedPythonFrame, PythonFrame, is_cell};

use super::capture::PythonStackMemory;
use super::cell::name_cell;
use super::state::{PROBATION_FRAMES, PythonStacks};
use crate::kernel_memory::KernelMemory;
use crate::text_out::give;

pub(super) unsafe extern "C" fn resolve(
    context: *mut c_void,
    frame: *const RawFrame,
    named: *mut NamedFrame,
) -> c_int {
    // SAFETY: the context that was registered, and what the engine gives.
    let (this, raw, to) = unsafe { (&*context.cast::<PythonStacks>(), *frame, &mut *named) };
    let Some(python) = this.python() else {
        return 1;
    };
    let frame = PythonFrame {
        code: raw.code,
        place: raw.place,
        version: raw.version,
        entry: 0,
    };
    // SAFETY: the engine gives texts of these sizes, each with one byte more.
    let (name, file) = unsafe {
        (
            std::slice::from_raw_parts_mut(to.name.cast::<u8>(), to.name_size),
            std::slice::from_raw_parts_mut(to.file.cast::<u8>(), to.file_size),
        )
    };
    let mut texts = NamedPythonFrame {
        name,
        name_len: 0,
        file,
        file_len: 0,
        start_line: 0,
        line: 0,
    };
    let (reached, cell): (&mut [LineTableProgress], _) =
        if to.memory_size < size_of::<PythonStackMemory>() {
            (&mut [], None)
        } else {
            // SAFETY: this thread's memory, which is zero at first.
            let known = unsafe { &mut *to.memory.cast::<PythonStackMemory>() };
            (&mut known.reached, Some(&mut known.cell))
        };
    let done = if this.frames.load(Ordering::Relaxed) < PROBATION_FRAMES {
        let failed = Cell::new(false);
        python.name(
            KernelMemory { failed: &failed },
            &frame,
            reached,
            &mut texts,
        )
    } else {
        // SAFETY: what was read so far was right, and the frame is one of this thread's stack.
        python.name(unsafe { OwnMemory::new() }, &frame, reached, &mut texts)
    };
    if done.is_none() {
        return 1;
    }
    let NamedPythonFrame {
        name,
        mut name_len,
        file,
        file_len,
        start_line,
        line,
    } = texts;
    if is_cell(&name[..name_len], &file[..file_len])
        && let Some(len) = name_cell(this, python, cell, &file[..file_len], name)
    {
        name_len = len;
    }
    if let Some(end) = name.get_mut(name_len) {
        *end = 0;
    }
    if let Some(end) = file.get_mut(file_len) {
        *end = 0;
    }
    (to.start_line, to.line) = (start_line, line);
    0
}

pub(super) unsafe extern "C" fn status(
    context: *mut c_void,
    text: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the context that was registered.
    let this = unsafe { &*context.cast::<PythonStacks>() };
    let Some(why) = this.why_not() else {
        return 1;
    };
    // SAFETY: the engine gives a text of this size.
    unsafe { give(why.as_bytes(), text, size) };
    0
}
