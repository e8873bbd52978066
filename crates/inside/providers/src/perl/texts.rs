//! Provides the texts of Perl's frames and labels, and the reasons why frames are missing.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use heapprof_engine::{NamedFrame, RawFrame};
use heapprof_memory::OwnMemory;
use heapprof_perl::{BoundedText, NamedPerlFrame, PerlFrame};

use super::capture::HOLDS_OPS;
use super::state::PerlStacks;
use crate::kernel_memory::KernelMemory;
use crate::runtime_state::ReadState;
use crate::text_out::give;

const PHASES: [&str; 7] = [
    "CONSTRUCT",
    "START",
    "CHECK",
    "INIT",
    "RUN",
    "END",
    "DESTRUCT",
];

pub(super) unsafe extern "C" fn resolve(
    context: *mut c_void,
    frame: *const RawFrame,
    named: *mut NamedFrame,
) -> c_int {
    // SAFETY: the context that was registered, and what the engine gives.
    let (this, raw, to) = unsafe { (&*context.cast::<PerlStacks>(), *frame, &mut *named) };
    let Some(perl) = this.perl() else { return 1 };
    let frame = PerlFrame {
        code: raw.code,
        cop: raw.place,
        version: raw.version,
        line: raw.line,
        from_c: false,
        context: 0,
    };
    // SAFETY: the engine gives texts of these sizes.
    let (name, file) = unsafe {
        (
            std::slice::from_raw_parts_mut(to.name.cast::<u8>(), to.name_size),
            std::slice::from_raw_parts_mut(to.file.cast::<u8>(), to.file_size),
        )
    };
    let mut texts = NamedPerlFrame {
        name: BoundedText::new(name),
        file: BoundedText::new(file),
        start_line: 0,
    };
    let failed = Cell::new(false);
    if this.is_believed.load(Ordering::Relaxed) {
        // SAFETY: what was read so far was right, and the frame is one of this thread's stack.
        perl.name(unsafe { OwnMemory::new() }, &frame, &mut texts);
    } else {
        perl.name(KernelMemory { failed: &failed }, &frame, &mut texts);
    }
    if failed.get() {
        this.switch_off(ReadState::Broken);
        return 1;
    }
    if !this.keeps_eval_numbers.load(Ordering::Relaxed) {
        texts.name.leave_out_eval_numbers();
        texts.file.leave_out_eval_numbers();
    }
    let (start_line, name_len, file_len) = (
        texts.start_line,
        texts.name.bytes().len(),
        texts.file.bytes().len(),
    );
    if let Some(end) = name.get_mut(name_len) {
        *end = 0;
    }
    if let Some(end) = file.get_mut(file_len) {
        *end = 0;
    }
    (to.start_line, to.line) = (start_line, raw.line);
    0
}

pub(super) unsafe extern "C" fn label(
    context: *mut c_void,
    label: u64,
    i: usize,
    key: *mut c_char,
    key_size: usize,
    text: *mut c_char,
    text_size: usize,
) -> c_int {
    // SAFETY: the context that was registered.
    let this = unsafe { &*context.cast::<PerlStacks>() };
    if let Some(labels) = super::trace::labels(this, label) {
        let Some((found, value)) = labels.get(i) else {
            return 1;
        };
        // SAFETY: the engine gives texts of these sizes.
        unsafe {
            give(found.as_bytes(), key, key_size);
            give(value.as_bytes(), text, text_size);
        }
        return 0;
    }
    let (op, phase, number) = (label as u16, (label >> 16) as u8, (label >> 32) as u16);
    let mut labels = Vec::new();
    if this.known_perl().is_some() {
        // SAFETY: the names are not written any more.
        let names = unsafe { &(*this.op_names.get()).0 };
        let name = names.get(usize::from(op)).filter(|_| op != 0);
        let name = name.and_then(|name| name.split(|&byte| byte == 0).next());
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            labels.push(("op", String::from_utf8_lossy(name).into_owned()));
        }
    }
    if let Some(phase) = PHASES.get(usize::from(phase).wrapping_sub(1)) {
        labels.push(("phase", (*phase).to_string()));
    }
    if number != 0 {
        labels.push(("thread", format!("ithread {number}")));
    }
    if label & HOLDS_OPS != 0 {
        labels.push(("holds", "op trees".to_string()));
    }
    let Some((found, value)) = labels.get(i) else {
        return 1;
    };
    // SAFETY: the engine gives texts of these sizes.
    unsafe {
        give(found.as_bytes(), key, key_size);
        give(value.as_bytes(), text, text_size);
    }
    0
}

pub(super) unsafe extern "C" fn status(
    context: *mut c_void,
    text: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the context that was registered.
    let this = unsafe { &*context.cast::<PerlStacks>() };
    let state = this.runtime.state();
    let is_broken = state == ReadState::On && this.is_broken();
    if !is_broken && !state.is_given_up() {
        return 1;
    }
    let why = match (state, this.runtime.found(), this.known_perl()) {
        (ReadState::Unreadable, Some(Err(unreadable)), _) => unreadable.to_string(),
        (ReadState::Differs, _, Some(perl)) => {
            format!(
                "the structures of perl {} do not match its version",
                perl.version
            )
        }
        (_, _, Some(perl)) => format!("perl {} has an invalid address", perl.version),
        _ => return 1,
    };
    // SAFETY: the engine gives a text of this size.
    unsafe { give(why.as_bytes(), text, size) };
    0
}
