//! The provider of Perl's stacks: which thread runs which interpreter, and whether what is read of
//! it can be believed.
//!
//! The first stacks of an interpreter are read by the kernel, and compared with what Perl's own
//! `Perl_caller_cx` says. If nothing is wrong with them, later ones are read directly, and compared
//! now and then. A stack that is wrong switches the provider off.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use heapprof_collect::{Capture, ENGINE, NamedFrame, Provider, RawFrame};
use heapprof_memory::{Memory, Own};
use heapprof_perl::{Context, EACH_END, Frame, LastWalk, Named, Perl, Sink, Text, Unreadable};

use crate::kernel_memory::Kernel;

/// The provider of this process.
pub static PERL: PerlStacks = PerlStacks::new();

/// What is known of the perl in this process.
pub struct PerlStacks {
    state: AtomicU8,
    known: UnsafeCell<Option<Result<Perl, Unreadable>>>,
    op_names: UnsafeCell<OpNames>,
    interpreters: [Interpreter; 64],
    /// How many interpreters there were.
    count: AtomicU32,
    keeps_eval_numbers: AtomicBool,
    /// Whether enough stacks were read and found right.
    is_believed: AtomicBool,
}

/// The names of ops, each up to a zero.
struct OpNames([[u8; 24]; 512]);

/// Nobody has found a perl.
const NONE: u8 = 0;
/// Somebody has, and notes it.
const FOUND: u8 = 1;
/// Its stacks are read.
const ON: u8 = 2;
/// Its structures are not known.
const UNREADABLE: u8 = 3;
/// Its own function says something else.
const DIFFERS: u8 = 4;
/// An address in it was none.
const BROKEN: u8 = 5;

// SAFETY: what was found is written once, before the state says so.
unsafe impl Sync for PerlStacks {}

/// An interpreter that runs or ran.
#[repr(align(64))]
struct Interpreter {
    /// Where it is; 0 if this place is free.
    at: AtomicU64,
    /// How many came before it.
    number: AtomicU32,
    /// How many stacks of it were read. Threads may lose some of each other's counts.
    stacks: AtomicU32,
}

/// So many stacks of an interpreter are read by the kernel first.
const PROBATION: u32 = 64;
/// One in so many of a thread's stacks is compared with what Perl says.
const COMPARED: u32 = 4096;
/// How many frames of a stack are compared.
const FRAMES: usize = 32;

impl PerlStacks {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(NONE),
            known: UnsafeCell::new(None),
            op_names: UnsafeCell::new(OpNames([[0; 24]; 512])),
            interpreters: [const {
                Interpreter {
                    at: AtomicU64::new(0),
                    number: AtomicU32::new(0),
                    stacks: AtomicU32::new(0),
                }
            }; 64],
            count: AtomicU32::new(0),
            keeps_eval_numbers: AtomicBool::new(false),
            is_believed: AtomicBool::new(false),
        }
    }

    /// Says whether `(eval 12)` keeps its number.
    pub fn keep_eval_numbers(&self, keeps: bool) {
        self.keeps_eval_numbers.store(keeps, Ordering::Relaxed);
    }

    /// Notes a perl, if it is the first one, and has its stacks asked for.
    pub fn found<M: Memory>(&'static self, memory: M, found: Result<Perl, Unreadable>) {
        let first = self
            .state
            .compare_exchange(NONE, FOUND, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_err() {
            return;
        }
        let state = if found.is_ok() { ON } else { UNREADABLE };
        let (run_loop, size) = match &found {
            Ok(perl) => (perl.run_loop.0, perl.run_loop.1 - perl.run_loop.0),
            Err(_) => (0, 0),
        };
        // SAFETY: this thread alone changed the state from `NONE`, and nobody reads either before
        // the next change.
        unsafe {
            if let Ok(perl) = &found {
                let names = &mut (*self.op_names.get()).0;
                for (op, name) in names.iter_mut().enumerate().take(perl.ops().into()) {
                    let last = name.len() - 1;
                    if perl.op_name(memory, op as u16, &mut name[..last]).is_none() {
                        name[0] = 0;
                    }
                }
            }
            *self.known.get() = Some(found);
        }
        self.state.store(state, Ordering::Release);
        let provider = Provider {
            version: Provider::VERSION,
            size: size_of::<Provider>() as u32,
            language: c"perl".as_ptr(),
            context: std::ptr::from_ref(self).cast_mut().cast(),
            capture,
            resolve,
            label: Some(label),
            status: Some(status),
            run_loop: run_loop as *const c_void,
            run_loop_size: size as usize,
        };
        // SAFETY: the functions below do what a provider's must, in any thread. Without a place for
        // it, stacks are native ones.
        let _ = unsafe { ENGINE.stack_providers().register(provider) };
    }

    /// The perl, if its stacks are read.
    #[inline(always)]
    fn perl(&self) -> Option<&Perl> {
        if self.state.load(Ordering::Acquire) != ON {
            return None;
        }
        self.known_perl()
    }

    /// The perl, whether its stacks are read or not any more.
    fn known_perl(&self) -> Option<&Perl> {
        if self.state.load(Ordering::Acquire) < ON {
            return None;
        }
        // SAFETY: it is not written any more.
        unsafe { (*self.known.get()).as_ref()?.as_ref().ok() }
    }

    fn switch_off(&self, why: u8) {
        let _ = self
            .state
            .compare_exchange(ON, why, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// What is known of the interpreter at `at`. When there are more than there are places, some
    /// share one.
    #[inline(always)]
    fn interpreter(&self, at: u64) -> &Interpreter {
        let mut place = (at >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        for _ in 0..8 {
            let found = &self.interpreters[place as usize & 63];
            let is_at = found.at.load(Ordering::Relaxed);
            if is_at == at {
                return found;
            }
            if is_at == 0 {
                let mine = found
                    .at
                    .compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
                if mine.is_ok() {
                    let number = self.count.fetch_add(1, Ordering::Relaxed);
                    found.number.store(number, Ordering::Relaxed);
                    return found;
                }
            }
            place += 1;
        }
        &self.interpreters[place as usize & 63]
    }

    /// Compares frames with what Perl says. `contexts` are those of the newest ones.
    #[cold]
    fn compare(&self, perl: &Perl, interpreter: u64, contexts: &Contexts, leaf_is_cut: bool) {
        if perl.caller_cx == 0 {
            return;
        }
        let ask = |level: usize| -> u64 {
            type WithThreads = unsafe extern "C" fn(u64, c_int, *mut c_void) -> u64;
            type Without = unsafe extern "C" fn(c_int, *mut c_void) -> u64;
            let (level, none) = (level as c_int, std::ptr::null_mut());
            let function = perl.caller_cx as *const c_void;
            // SAFETY: the function is Perl's, of a version that declares it so. It reads the stack
            // of the interpreter that this thread runs, and nothing else.
            unsafe {
                match perl.context {
                    Context::Variables => {
                        std::mem::transmute::<*const c_void, Without>(function)(level, none)
                    }
                    _ => std::mem::transmute::<*const c_void, WithThreads>(function)(
                        interpreter,
                        level,
                        none,
                    ),
                }
            }
        };
        let mut fake = 0;
        let known = &contexts.at[..contexts.len.min(FRAMES)];
        // SAFETY: what Perl gives are its contexts.
        let memory = unsafe { Own::new() };
        let first = ask(0);
        if known.first() != Some(&first) && perl.is_fake(memory, first) {
            // Perl counts the code of a regular expression at the top.
            fake = 1;
        }
        let differs = known.iter().enumerate().any(|(i, &at)| ask(i + fake) != at);
        let all = contexts.len <= FRAMES && !leaf_is_cut;
        if differs || all && ask(known.len() + fake) != 0 {
            self.switch_off(DIFFERS);
        }
    }
}

/// The contexts of the newest frames.
struct Contexts {
    at: [u64; FRAMES],
    len: usize,
}

/// Writes frames as the engine wants them.
struct Writer {
    to: *mut RawFrame,
    most: usize,
    len: usize,
}

/// Writes frames, and keeps their contexts.
struct Careful {
    writer: Writer,
    contexts: Contexts,
}

impl Writer {
    #[inline(always)]
    fn put(&mut self, i: usize, frame: Frame) {
        let raw = RawFrame {
            code: frame.code,
            place: frame.cop,
            version: frame.version,
            line: frame.line,
            entry: u64::from(frame.from_c),
        };
        if i < self.most {
            // SAFETY: the engine gives an array of so many frames.
            unsafe { self.to.add(i).write(raw) };
        }
    }
}

impl Sink for Writer {
    fn restart(&mut self) {
        self.len = 0;
    }

    #[inline(always)]
    fn newest(&mut self, frame: Frame) {
        self.put(self.len, frame);
        self.len += 1;
    }

    fn oldest(&mut self, callers: usize, frame: Frame) {
        // They come from the root, and are moved to their place at the end.
        self.put(self.most - 1 - callers, frame);
    }
}

impl Sink for Careful {
    fn restart(&mut self) {
        self.writer.restart();
        self.contexts.len = 0;
    }

    fn newest(&mut self, frame: Frame) {
        self.writer.newest(frame);
        let Contexts { at, len } = &mut self.contexts;
        if frame.context != 0 {
            if let Some(at) = at.get_mut(*len) {
                *at = frame.context;
            }
            *len += 1;
        }
    }

    fn oldest(&mut self, callers: usize, frame: Frame) {
        self.writer.oldest(callers, frame);
    }
}

/// The interpreter that this thread runs; 0 if its parts are variables by themselves.
#[inline(always)]
fn current(perl: &Perl) -> Option<u64> {
    // SAFETY: these are variables of a perl that is not unloaded while it runs.
    let memory = unsafe { Own::new() };
    match perl.context {
        Context::Key { key, first } => {
            if memory.u64(first)? == 0 {
                return None;
            }
            let key = memory.u32(key)?;
            // SAFETY: Perl has made the key.
            let found = unsafe { libc::pthread_getspecific(key) };
            Some(found as u64).filter(|&found| found != 0)
        }
        Context::Pointer(first) => memory.u64(first).filter(|&found| found != 0),
        Context::Variables => Some(0),
    }
}

/// What is said of a whole stack, in one number: the op, Perl's phase and one more, and which
/// interpreter it is.
fn label_of(op: u16, phase: Option<u8>, interpreter: u32) -> u64 {
    let phase = phase.map_or(0, |phase| u64::from(phase) + 1);
    u64::from(op) | phase << 16 | u64::from(interpreter as u16) << 32
}

const PHASES: [&str; 7] = [
    "CONSTRUCT",
    "START",
    "CHECK",
    "INIT",
    "RUN",
    "END",
    "DESTRUCT",
];

unsafe extern "C" fn capture(context: *mut c_void, to: *mut Capture) -> usize {
    // SAFETY: the context that was registered, and what the engine gives. Its memory is large
    // enough, and all zero is a new one.
    let (this, to) = unsafe { (&*context.cast::<PerlStacks>(), &mut *to) };
    const { assert!(size_of::<LastWalk>() <= 16 << 10) };
    if to.memory_size < size_of::<LastWalk>() {
        return 0;
    }
    // SAFETY: as above.
    let last = unsafe { &mut *to.memory.cast::<LastWalk>() };
    let Some(perl) = this.perl() else { return 0 };
    let Some(at) = current(perl) else { return 0 };
    if last.left > 0
        // SAFETY: what was read so far was right, and this thread changes nothing meanwhile.
        && let Some((frame, leaf)) = perl.walk_unchanged(unsafe { Own::new() }, at, last)
    {
        last.left -= 1;
        let mut writer = Writer {
            to: to.frames,
            most: to.most,
            len: 0,
        };
        writer.newest(frame);
        to.label = label_of(leaf.op, leaf.phase, last.number);
        to.shared = leaf.shared;
        return 1 + leaf.shared;
    }
    this.capture_whole(perl, at, last, to)
}

impl PerlStacks {
    /// Captures a stack of which something changed, or that is to be compared.
    #[inline(never)]
    fn capture_whole(&self, perl: &Perl, at: u64, last: &mut LastWalk, to: &mut Capture) -> usize {
        let interpreter = self.interpreter(at);
        let count = interpreter.stacks.load(Ordering::Relaxed);
        interpreter
            .stacks
            .store(count.saturating_add(1), Ordering::Relaxed);
        if count == PROBATION {
            self.is_believed.store(true, Ordering::Relaxed);
        }
        let (frames, most) = (to.frames, to.most);
        let mut writer = Writer {
            to: frames,
            most,
            len: 0,
        };
        let walked = if count < PROBATION || last.left == 0 {
            last.forget();
            last.left = COMPARED;
            self.walk_and_compare(perl, at, count < PROBATION, writer)
        } else {
            last.left -= 1;
            // SAFETY: what was read so far was right, and this thread changes nothing meanwhile.
            perl.walk(unsafe { Own::new() }, at, last, &mut writer)
        };
        let Some(leaf) = walked else { return 0 };
        last.number = interpreter.number.load(Ordering::Relaxed);
        let op = if leaf.compiles { 0 } else { leaf.op };
        to.label = label_of(op, leaf.phase, last.number);
        to.shared = leaf.shared;
        if leaf.oldest == 0 && !leaf.is_cut {
            return leaf.newest + leaf.shared;
        }
        let cut = usize::from(leaf.is_cut);
        // SAFETY: all lie in the array, which has room for both ends and one more.
        unsafe {
            if leaf.is_cut {
                frames.add(leaf.newest).write(RawFrame::default());
            }
            let from = frames.add(most - leaf.oldest);
            std::ptr::copy(from, frames.add(leaf.newest + cut), leaf.oldest);
        }
        leaf.newest + cut + leaf.oldest
    }
}

impl PerlStacks {
    #[cold]
    #[inline(never)]
    fn walk_and_compare(
        &self,
        perl: &Perl,
        at: u64,
        carefully: bool,
        writer: Writer,
    ) -> Option<heapprof_perl::Leaf> {
        let contexts = Contexts {
            at: [0; FRAMES],
            len: 0,
        };
        let mut careful = Careful { writer, contexts };
        let mut last = LastWalk::NEW;
        let failed = Cell::new(false);
        let walked = if carefully {
            perl.walk(Kernel { failed: &failed }, at, &mut last, &mut careful)
        } else {
            // SAFETY: as in `capture`.
            perl.walk(unsafe { Own::new() }, at, &mut last, &mut careful)
        };
        if failed.get() {
            self.switch_off(BROKEN);
            return None;
        }
        let leaf = walked?;
        if leaf.is_walked {
            self.compare(perl, at, &careful.contexts, leaf.is_cut);
        }
        (self.state.load(Ordering::Relaxed) == ON).then_some(leaf)
    }
}

unsafe extern "C" fn resolve(
    context: *mut c_void,
    frame: *const RawFrame,
    named: *mut NamedFrame,
) -> c_int {
    // SAFETY: the context that was registered, and what the engine gives.
    let (this, raw, to) = unsafe { (&*context.cast::<PerlStacks>(), *frame, &mut *named) };
    let Some(perl) = this.perl() else { return 1 };
    let frame = Frame {
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
    let mut texts = Named {
        name: Text::new(name),
        file: Text::new(file),
        start_line: 0,
    };
    let failed = Cell::new(false);
    if this.is_believed.load(Ordering::Relaxed) {
        // SAFETY: what was read so far was right, and the frame is one of this thread's stack.
        perl.name(unsafe { Own::new() }, &frame, &mut texts);
    } else {
        perl.name(Kernel { failed: &failed }, &frame, &mut texts);
    }
    if failed.get() {
        this.switch_off(BROKEN);
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

/// Puts `text` and a zero into a text of `size` bytes.
unsafe fn give(text: &[u8], to: *mut c_char, size: usize) {
    let n = text.len().min(size.saturating_sub(1));
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), n);
        *to.add(n) = 0;
    }
}

unsafe extern "C" fn label(
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

unsafe extern "C" fn status(context: *mut c_void, text: *mut c_char, size: usize) -> c_int {
    // SAFETY: the context that was registered.
    let this = unsafe { &*context.cast::<PerlStacks>() };
    let state = this.state.load(Ordering::Acquire);
    if state <= ON {
        return 1;
    }
    // SAFETY: it is not written any more.
    let known = unsafe { (*this.known.get()).as_ref() };
    let why = match (state, known) {
        (_, Some(Err(unreadable))) => unreadable.to_string(),
        (DIFFERS, Some(Ok(perl))) => {
            format!("what was read of perl {} is not what it says", perl.version)
        }
        (_, Some(Ok(perl))) => format!("perl {} has an address that is none", perl.version),
        (_, None) => return 1,
    };
    // SAFETY: the engine gives a text of this size.
    unsafe { give(why.as_bytes(), text, size) };
    0
}

const _: () = assert!(2 * EACH_END < 513);
