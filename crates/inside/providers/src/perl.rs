//! The provider of Perl's stacks.
//!
//! The first stacks of an interpreter are read by system calls and compared with the results of
//! `Perl_caller_cx`. If they are right, later stacks are read directly, and compared now and then.
//! A wrong stack switches the provider off. The engine reports when an interpreter is freed, so a
//! freed interpreter is never read.
//!
//! * `perl/state.rs`: the perl and its interpreters.
//! * `perl/capture.rs`: the stack of a thread.
//! * `perl/arenas.rs`, `perl/report.rs`: the use of Perl's arenas, and its report in a profile.
//! * `perl/arena_values.rs`: the values that lie in an arena.
//! * `perl/values.rs`: the live values and the stacks that made them, if Devel::HeapProf is loaded.
//! * `perl/trace.rs`: the reports of Devel::HeapProf, and the values in a profile.
//! * `perl/timed_lock.rs`: a lock that is tried for a short time only.
//! * `perl/texts.rs`: the names of frames and labels.

mod arena_values;
mod arenas;
mod capture;
mod report;
mod state;
mod texts;
mod thread_memory;
mod timed_lock;
mod trace;
mod values;

use std::ffi::c_void;

use heapprof_engine::{ENGINE, StackProvider};

pub use heapprof_perl::PerlLayout;
pub use state::PERL;
pub use values::{TracedInterpreter, ValueRequest};

/// Registers the provider of Perl's stacks. The argument is the addresses of the run loop's
/// beginning and end.
fn register((begin, end): (u64, u64)) {
    let provider = StackProvider {
        version: StackProvider::VERSION,
        size: size_of::<StackProvider>() as u32,
        language: c"perl".as_ptr(),
        context: (&raw const PERL).cast_mut().cast(),
        capture: capture::capture,
        resolve: texts::resolve,
        label: Some(texts::label),
        status: Some(texts::status),
        run_loop: begin as *const c_void,
        run_loop_size: (end - begin) as usize,
        report: Some(report::report),
        value_name: c"sv".as_ptr(),
        values: Some(trace::values),
        unchanged: None,
    };
    // SAFETY: the functions do what a provider's must, in any thread. If there is no room for the
    // provider, stacks are native ones.
    let _ = unsafe { ENGINE.stack_providers().register(provider) };
}
