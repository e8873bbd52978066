//! The library's start: at the process's first allocation or in its constructor, whichever comes
//! first.

use std::ffi::c_void;

use heapprof_engine::{ENGINE, RecordingOptions, is_inside_engine};
use heapprof_platform::{sys, weak};
use heapprof_providers::{interpreters, perl, python};

use crate::messages::{report, report_misunderstood, say};
use crate::{
    allocator, end, entry_hooks, environment, identity, imports, late_start, ledger_hooks, mark,
    mmap_hooks, own_variables, real_functions, sandbox, signals, start_state, thread_local,
    wiretap,
};

/// Starts the library, unless libc is not initialized yet. `caller` is the return address of the
/// allocation. If a process has attached, scans for new objects instead.
#[cold]
pub fn at_first_allocation(caller: *const c_void) {
    if is_inside_engine() {
        return;
    }
    if start_state::scan_objects() {
        return;
    }
    imports::bind();
    // The allocation may come from a resolver, which chooses a function while the loader binds
    // symbols.
    ENGINE.lifecycle().suspend_clock();
    begin_once(caller);
}

fn begin_once(caller: *const c_void) {
    imports::bind();
    ENGINE.lifecycle().with_reentrancy_guard(|| {
        // The allocator behind us must be known before anything is passed on to it.
        real_functions::find();
        let ready = environment::is_there();
        if ready && !weak::is_known_libc() {
            stay_idle();
            return;
        }
        if ready && start_state::begin() {
            if begin() && !real_functions::is_libc(caller) {
                end::register();
            }
            start_state::finish();
        }
    });
}

/// Marks the library as started without starting anything, in a program whose libc is not known.
/// Reports this to `record`.
fn stay_idle() {
    if start_state::skip() && !is_secure() {
        environment::report_unrecorded("its C library is neither glibc nor musl");
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    thread_local::prepare();
    imports::bind();
    if !start_state::has_begun() && late_start::is_loaded_so() {
        return;
    }
    begin_early();
}

/// Starts the library at a moment when the program does not allocate.
pub fn begin_early() {
    if is_inside_engine() {
        return;
    }
    begin_once(begin_early as *const c_void);
    ENGINE.lifecycle().resume_clock();
    if !weak::is_known_libc() {
        return;
    }
    if start_state::is_done() && !is_secure() {
        ENGINE.lifecycle().with_reentrancy_guard(|| {
            interpreters::scan_at_start();
            entry_hooks::install();
        });
    }
    if !is_secure() {
        end::register();
    }
}

/// Whether the program has more rights than its user. The user's environment must then be ignored.
fn is_secure() -> bool {
    // SAFETY: plain libc call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Sets everything up, and returns true. Does nothing and returns false if the program has more
/// rights than its user.
fn begin() -> bool {
    if is_secure() {
        return false;
    }
    // Nothing here panics. If it did, the message must not go into the program's output.
    std::panic::set_hook(Box::new(|_| {}));
    ENGINE.lifecycle().prepare();
    end::prepare();
    signals::prepare();
    mmap_hooks::prepare();
    identity::prepare();
    ledger_hooks::prepare();
    sandbox::prepare();
    allocator::prepare();
    wiretap::prepare();
    mark::prepare();
    record();
    true
}

/// Starts a recording. Returns false if there is no memory for it, or if the period is too long.
pub fn begin_recording(options: RecordingOptions) -> bool {
    own_variables::mark();
    ENGINE.lifecycle().start(options)
}

/// Starts recording, if the environment requests it.
fn record() {
    let asked = environment::python_objects().and_then(|answer| {
        python::PYTHON_OBJECTS.set_answer(answer, environment::python_has_malloc());
        environment::read()
    });
    let asked = match asked {
        Ok(Some(asked)) => asked,
        Ok(None) => return,
        Err(wrong) => {
            report_misunderstood(&wrong);
            return;
        }
    };
    if asked.verbose {
        ENGINE.dumps().on_dump(report);
    }
    let other_malloc = real_functions::defined_elsewhere(c"malloc");
    if other_malloc && asked.verbose {
        say(&[
            b"heapprof: this program has its own malloc, which takes precedence over heapprof's; \
              use heapprof-alloc in it",
        ]);
    }
    if !asked.options.follow_children && asked.options.output.parent != Some(sys::parent_id()) {
        return;
    }
    mmap_hooks::enable(asked.mmap);
    entry_hooks::request(asked.allocators);
    perl::PERL.keep_eval_numbers(asked.numbers_evals);
    if asked.start {
        python::PYTHON_OBJECTS.begin(asked.options.mode);
    }
    perl::PERL.want_values(match (asked.values, asked.recorded && asked.is_program) {
        (false, _) => perl::ValueRequest::Nothing,
        (true, false) => perl::ValueRequest::Values,
        (true, true) => perl::ValueRequest::ValuesOrNothing,
    });
    // heapprof_start takes these options, with its own mode and period, and with its own output if
    // it has one.
    ENGINE.lifecycle().set_default(asked.options.clone());
    if asked.recorded {
        ENGINE.lifecycle().begin_with_program();
    }
    if asked.start && !begin_recording(asked.options) {
        say(&[b"heapprof: not recording: there is no memory for it, or the period is too long"]);
    }
    if let Some(signal) = asked.signal
        && !signals::dump_on(signal)
        && asked.verbose
    {
        say(&[b"heapprof: the program handles the dump signal itself, so heapprof does not"]);
    }
    if asked.recorded {
        end::expect_profile();
        signals::catch_ends();
    }
}
