//! The functions that a program may call: heapprof's functions, and functions of gperftools under
//! their usual names. include/heapprof.h declares all of them.

use std::ffi::{CString, c_char, c_int, c_ulong, c_void};

use heapprof_engine::{
    DumpFormat, DumpOutput, DumpReason, ENGINE, LoadAttempt, LoadOutcome, MAX_PERIOD,
    RecordingMode, RecordingOptions, RegistrationError, StackProvider,
};
use heapprof_platform::sys;
use heapprof_providers::perl::{PERL, PerlLayout, TracedInterpreter};
use heapprof_providers::python;

use crate::messages::{report_misunderstood, say, status, text};
use crate::real_functions::real;
use crate::{end, environment, mmap_hooks, start, wiretap};

/// Starts a recording. `output` is a pattern for file names as in HEAPPROF_OUTPUT. If it is null,
/// the environment's pattern is used; without any pattern, no files are written. A `period` of 0
/// records every allocation. Any other `period` is the mean number of allocated bytes between two
/// samples. Earlier recorded data is discarded. Returns 0, or an errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_start(output: *const c_char, period: c_ulong) -> c_int {
    let mode = if period == 0 {
        RecordingMode::Exact
    } else {
        RecordingMode::Sampled
    };
    if period > MAX_PERIOD {
        return libc::EINVAL;
    }
    if ENGINE.lifecycle().is_sandboxed() {
        return libc::EPERM;
    }
    ENGINE.lifecycle().with_guard_and_signals_blocked(|| {
        // SAFETY: the caller's contract.
        let pattern = unsafe { text(output) }.unwrap_or_default();
        let mut options = ENGINE.lifecycle().default_options().unwrap_or_default();
        if !pattern.is_empty() {
            if options.output.numbered_prefix {
                // gperftools' text form is for gperftools' own names.
                options.format = DumpFormat::Pprof;
            }
            options.output = own_output(pattern, options.output.list);
        }
        python::PYTHON_OBJECTS.begin(mode);
        let started = start::begin_recording(RecordingOptions {
            mode,
            period,
            ..options
        });
        if started { 0 } else { libc::EBUSY }
    })
}

/// Returns the output for a recording that this process starts itself. `list` is the folder in
/// which `heapprof record` collects reports; it is empty if there is no such folder. The
/// recording's dumps are reported there.
fn own_output(pattern: &[u8], list: Vec<u8>) -> DumpOutput {
    DumpOutput {
        pattern: pattern.to_vec(),
        parent: Some(sys::parent_id()),
        list,
        ..DumpOutput::default()
    }
}

/// Ends the recording. The recorded data can still be dumped.
#[unsafe(no_mangle)]
pub extern "C" fn heapprof_stop() {
    end::stop();
}

/// Whether allocations are being recorded.
#[unsafe(no_mangle)]
pub extern "C" fn heapprof_is_running() -> c_int {
    c_int::from(ENGINE.lifecycle().is_running())
}

/// Writes a profile to `path`. If `path` is null, writes it to the file that the output pattern
/// names. Returns 0, or an errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_dump(path: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    let path = unsafe { text(path) };
    if ENGINE.lifecycle().is_sandboxed() {
        return libc::EPERM;
    }
    let result = ENGINE.dumps().request(path);
    ENGINE
        .lifecycle()
        .with_guard_and_signals_blocked(|| status(result))
}

/// Waits until `heapprof record --fork-audit` has scanned the pages of this forked child. A nonzero
/// `ends` means that the child is about to end: the audit then shows this scan only if it has no
/// earlier one. Returns 1 if the pages were scanned, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn heapprof_look(ends: c_int) -> c_int {
    let look = || ENGINE.wait_for_audit(ends != 0);
    c_int::from(ENGINE.lifecycle().with_guard_and_signals_blocked(look))
}

/// Reports to `heapprof record --fork-audit` that this forked child has tried to load a file.
/// Returns 1 if the attempt was recorded, and 0 in the first process or without an audit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_load(load: *const ReportedLoad) -> c_int {
    // SAFETY: the caller's contract.
    let Some(load) = (unsafe { load.as_ref() }) else {
        return 0;
    };
    c_int::from(ENGINE.lifecycle().with_guard_and_signals_blocked(|| {
        // SAFETY: the caller's contract: each is null, or ends in a zero.
        let text = |of, longest| unsafe { read_truncated(of, longest) };
        let Some(outcome) = LoadOutcome::from_name(&text(load.outcome, MAX_LOAD_NAME_LEN)) else {
            return false;
        };
        let load = LoadAttempt {
            name: text(load.name, MAX_LOAD_NAME_LEN),
            kind: text(load.kind, MAX_LOAD_NAME_LEN),
            outcome,
            micros: load.micros,
            site: text(load.site, MAX_LOAD_SITE_LEN),
            stats: load.stats,
            opens: load.opens,
        };
        let is_noted = ENGINE.report_load(&load);
        if is_noted {
            wiretap::load(&load);
        }
        is_noted
    }))
}

/// Maximum length in bytes of each text of a reported load, except its site.
const MAX_LOAD_NAME_LEN: usize = 1000;
/// Maximum length in bytes of the site of a reported load.
const MAX_LOAD_SITE_LEN: usize = 3000;

/// Load attempt that the caller of `heapprof_load` reports: `struct heapprof_load` in heapprof.h.
#[derive(Debug)]
#[repr(C)]
pub struct ReportedLoad {
    name: *const c_char,
    kind: *const c_char,
    outcome: *const c_char,
    site: *const c_char,
    micros: i64,
    stats: i64,
    opens: i64,
}

/// Returns at most `longest` bytes of a C string as text; an empty text if the string is null.
///
/// # Safety
/// The string is null, or ends in a zero.
unsafe fn read_truncated(of: *const c_char, longest: usize) -> String {
    // SAFETY: the caller's contract.
    let bytes = unsafe { text(of) }.unwrap_or_default();
    String::from_utf8_lossy(&bytes[..bytes.len().min(longest)]).into_owned()
}

/// Returns the profile as gzipped pprof, in memory that the caller frees, and stores its length in
/// `len`. Returns null if there is no memory, or if the program is in a sandbox.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_profile(len: *mut usize) -> *mut u8 {
    give(len, || ENGINE.dumps().profile(DumpReason::Request))
}

fn give(len: *mut usize, make: impl FnOnce() -> Vec<u8>) -> *mut u8 {
    if ENGINE.lifecycle().is_sandboxed() {
        return std::ptr::null_mut();
    }
    let bytes = make();
    ENGINE.lifecycle().with_guard_and_signals_blocked(|| {
        let bytes = bytes;
        // SAFETY: the block comes from the real malloc, so that the program's free takes it. It has
        // one byte more for a final zero.
        unsafe {
            let block = (real().malloc)(bytes.len() + 1);
            if !block.is_null() {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), block, bytes.len());
                *block.add(bytes.len()) = 0;
                if !len.is_null() {
                    *len = bytes.len();
                }
            }
            block
        }
    })
}

/// Registers a provider, which supplies the frames of an interpreter from now on. Its functions
/// must stay valid until the process ends. Returns 0; EINVAL if `provider` is null, has another
/// version or lacks a function; ENOSPC if the maximum number of providers is registered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_register_stack_provider(provider: *const c_void) -> c_int {
    /// A provider as a C program passes it: function pointers may be null.
    #[repr(C)]
    struct CStackProvider {
        version: u32,
        size: u32,
        language: *const c_char,
        context: *mut c_void,
        capture: *const c_void,
        resolve: *const c_void,
    }
    let given = provider.cast::<CStackProvider>();
    // SAFETY: the caller's contract: a structure that begins with its version and its size.
    let provider = unsafe {
        let is_whole = !given.is_null()
            && (*given).version == StackProvider::VERSION
            && (*given).size as usize >= size_of::<StackProvider>()
            && !(*given).capture.is_null()
            && !(*given).resolve.is_null();
        if !is_whole {
            return libc::EINVAL;
        }
        *provider.cast::<StackProvider>()
    };
    // SAFETY: the caller's contract.
    match unsafe { ENGINE.stack_providers().register(provider) } {
        Ok(()) => 0,
        Err(RegistrationError::Invalid) => libc::EINVAL,
        Err(RegistrationError::Full) => libc::ENOSPC,
    }
}

/// A field of Perl's structures, named as in heapprof's table of Perl versions.
#[repr(C)]
pub struct PerlField {
    name: *const c_char,
    value: u32,
}

/// Stores the layout of Perl's structures, which the module Devel::HeapProf reports. Returns 0, or
/// an errno: ENOENT if there is no perl, EINVAL if fields are missing or implausible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_layout(fields: *const PerlField, count: usize) -> c_int {
    if fields.is_null() || count > 4096 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's contract.
    let fields = unsafe { std::slice::from_raw_parts(fields, count) };
    let value = |row: &str| {
        // SAFETY: the caller's contract.
        let is_it = |field: &&PerlField| unsafe { text(field.name) } == Some(row.as_bytes());
        fields.iter().find(is_it).map(|field| field.value)
    };
    let Some(layout) = PerlLayout::from_rows(value) else {
        return libc::EINVAL;
    };
    let reported = ENGINE
        .lifecycle()
        .with_guard_and_signals_blocked(|| PERL.report_layout(layout));
    reported.err().unwrap_or(0)
}

/// Returns the address at which Devel::HeapProf must store each call of a C sub by an interpreter;
/// null if these calls are not needed. At the address are four words: the sub, the op, the context
/// stack, and the number of the stack's newest context.
#[unsafe(no_mangle)]
pub extern "C" fn heapprof_perl_calls(interpreter: *const c_void) -> *mut u64 {
    let calls = ENGINE
        .lifecycle()
        .with_guard_and_signals_blocked(|| PERL.calls_of(interpreter as u64));
    calls.map_or(std::ptr::null_mut(), |calls| calls.as_ptr() as *mut u64)
}

/// Whether to trace Perl's values: 0 for no, 1 for yes, 2 if the program must not run without
/// tracing.
#[unsafe(no_mangle)]
pub extern "C" fn heapprof_perl_values_wanted() -> c_int {
    PERL.wants_values() as c_int
}

/// Starts to trace an interpreter's values. `of_stale` is Perl's flag for a variable that its pad
/// keeps until its `my` runs again. Returns null if tracing is not requested, or is not possible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_values(
    interpreter: *const c_void,
    of_stale: u32,
    is_copy: c_int,
) -> *const TracedInterpreter {
    // SAFETY: the caller's contract.
    let traced = unsafe { PERL.trace_values(interpreter as u64, of_stale, is_copy != 0) };
    traced.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Tracks the changes that an op has made to values. Returns the number of values that the op made.
/// If it is not 0, the caller must call [`heapprof_perl_values_made`], which captures their stack.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_values_changed(traced: *const TracedInterpreter) -> usize {
    // SAFETY: the caller's contract.
    unsafe { PERL.follow_values(&*traced) }
}

/// Records the thread's current stack for the new values that [`heapprof_perl_values_changed`] has
/// counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_values_made(traced: *const TracedInterpreter) {
    // SAFETY: the caller's contract.
    PERL.note_values_made(unsafe { &*traced });
}

/// Notes that the whole program is compiled and begins to run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_values_compiled(traced: *const TracedInterpreter) {
    // SAFETY: the caller's contract.
    unsafe { PERL.note_values_compiled(&*traced) };
}

/// Notes that the thread has run the `my` of `count` variables. `variables` holds the addresses of
/// the variables' heads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_values_my(
    traced: *const TracedInterpreter,
    variables: *const u64,
    count: usize,
) {
    // SAFETY: the caller's contract.
    let (traced, variables) = unsafe { (&*traced, std::slice::from_raw_parts(variables, count)) };
    PERL.note_my_run(traced, variables);
}

/// Freezes the traced values, because the program has ended. `is_replaced` is nonzero if another
/// module's run loop ran the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_values_end(
    traced: *const TracedInterpreter,
    is_replaced: c_int,
) {
    // SAFETY: the caller's contract.
    PERL.end_values(unsafe { &*traced }, is_replaced != 0);
}

/// Begins a new section of the program. `text_of_mark` is the section's label; null means no label.
/// Returns the number of the section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_values_mark(text_of_mark: *const c_char) -> u32 {
    // SAFETY: the caller's contract.
    PERL.mark_values(unsafe { text(text_of_mark) })
}

/// The live values of one stack and kind that were made since a mark.
#[repr(C)]
pub struct PerlLeftover {
    stack: *const c_char,
    kind: *const c_char,
    class: *const c_char,
    objects: u64,
    bytes: u64,
}

/// Reports the live values that were made since a mark. `give` is called once for each stack and
/// kind. Returns 0, or an errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_perl_values_since(
    traced: *const TracedInterpreter,
    mark: u32,
    give: unsafe extern "C" fn(*mut c_void, *const PerlLeftover),
    to: *mut c_void,
) -> c_int {
    let texts = ENGINE.lifecycle().with_guard_and_signals_blocked(|| {
        // SAFETY: the caller's contract.
        let left = PERL.values_since(unsafe { &*traced }, mark)?;
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let with_texts = left.into_iter().map(|left| {
            let texts = [text(&left.stack), text(left.kind), text(&left.class)];
            (texts, left.objects, left.bytes)
        });
        Some(with_texts.collect::<Vec<_>>())
    });
    let Some(texts) = texts else {
        return libc::EAGAIN;
    };
    for ([stack, kind, class], objects, bytes) in &texts {
        let left = PerlLeftover {
            stack: stack.as_ptr(),
            kind: kind.as_ptr(),
            class: class.as_ptr(),
            objects: *objects,
            bytes: *bytes,
        };
        // SAFETY: the caller's contract. The program's own code runs here, so this thread is not
        // inside the engine.
        unsafe { give(to, &raw const left) };
    }
    ENGINE
        .lifecycle()
        .with_guard_and_signals_blocked(|| drop(texts));
    0
}

/// gperftools: starts a recording of every allocation into `PREFIX.NNNN.heap`. The variables of
/// gperftools set the intervals between dumps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn HeapProfilerStart(prefix: *const c_char) {
    if ENGINE.lifecycle().is_running() || ENGINE.lifecycle().is_sandboxed() {
        return;
    }
    ENGINE.lifecycle().with_guard_and_signals_blocked(|| {
        // SAFETY: the caller's contract.
        let prefix = unsafe { text(prefix) }.unwrap_or_default();
        let setup = match environment::gperftools() {
            Ok(setup) => setup,
            Err(wrong) => return report_misunderstood(&wrong),
        };
        if setup.mmap {
            mmap_hooks::enable(true);
        }
        let recorded = ENGINE.lifecycle().default_options().unwrap_or_default();
        let output = DumpOutput {
            numbered_prefix: true,
            ..own_output(prefix, recorded.output.list)
        };
        let (mode, format) = (RecordingMode::Exact, DumpFormat::Text);
        let started = ENGINE.lifecycle().start(RecordingOptions {
            mode,
            format,
            triggers: setup.triggers,
            output,
            ..RecordingOptions::default()
        });
        if !started {
            say(&[b"heapprof: HeapProfilerStart: there is no memory for it"]);
        }
    });
}

/// gperftools: whether allocations are being recorded.
#[unsafe(no_mangle)]
pub extern "C" fn IsHeapProfilerRunning() -> c_int {
    heapprof_is_running()
}

/// gperftools: ends the recording.
#[unsafe(no_mangle)]
pub extern "C" fn HeapProfilerStop() {
    end::stop();
}

/// gperftools: writes the next `PREFIX.NNNN.heap`. The reason is ignored; gperftools writes it to
/// its log, but heapprof has no log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn HeapProfilerDump(_reason: *const c_char) {
    // If tcmalloc is there, it calls this function once more when the program has ended.
    if ENGINE.lifecycle().is_running() && !end::has_ended() {
        let result = ENGINE.dumps().request(None);
        ENGINE
            .lifecycle()
            .with_guard_and_signals_blocked(|| status(result));
    }
}

/// gperftools: returns the profile as text, in memory that the caller frees.
#[unsafe(no_mangle)]
pub extern "C" fn GetHeapProfile() -> *mut u8 {
    give(std::ptr::null_mut(), || ENGINE.dumps().text_profile())
}
