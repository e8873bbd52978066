//! Makes dumps that signals request, and dumps that had to wait for the end of an event.

use std::sync::atomic::Ordering;

use heapprof_platform::lock::WaitPolicy;
use heapprof_platform::sys;

use crate::dump::dump_schedule::DueDumper;
use crate::engine::Engine;
use crate::event::reentrancy_guard::is_inside_engine;
use crate::reason::DumpReason;
use crate::recording::dumps::{DumpOutcome, EngineDumps, dump_only, scan};

impl DueDumper for Engine {
    fn run_due_scan(&'static self) {
        let mask = self.process.block_signals();
        scan(self);
        sys::restore_signals(mask);
    }

    /// Makes the dump that was requested in the middle of an event.
    fn run_due_dump(&'static self, reason: DumpReason) {
        let due = &self.dumping.due;
        let mask = self.process.block_signals();
        let became = dump_only(self, reason, 0);
        match became {
            DumpOutcome::Written => {}
            // The limits that requested the dump were switched off.
            DumpOutcome::Failed => due.rearm(&self.process, &self.ledger.access.heap),
            // The thread that forks, or the next one that leaves the engine, makes the dump.
            DumpOutcome::Later => due.request_dump(reason),
        }
        sys::restore_signals(mask);
        if became == DumpOutcome::Later || reason != DumpReason::Terminated {
            return;
        }
        // A signal requested this dump. The signal must still do its own work.
        let signal = self.dumping.raise.swap(0, Ordering::AcqRel);
        if signal != 0 {
            end_by(self, signal);
        }
    }
}

/// Ends the program by a signal. If another thread dumps, this waits for the end of that dump.
fn end_by(engine: &Engine, signal: i32) {
    let (process, turn) = (&engine.process, &engine.dumping.turn);
    let _turn = turn.take(process, DumpReason::Terminated, process.wait_timeout());
    raise_default(signal);
}

/// Makes a dump in a signal handler, or requests it for later: after the current event of this
/// thread, or after another thread's fork or dump. Returns whether the dump was made at once.
fn dump_or_ask(engine: &'static Engine, reason: DumpReason) -> bool {
    let later = is_inside_engine() || dump_only(engine, reason, 0) == DumpOutcome::Later;
    if later {
        engine.dumping.due.request_dump(reason);
    }
    !later
}

impl EngineDumps {
    /// Makes the dump that a signal requests. The signal's handler calls this. It is
    /// async-signal-safe: it uses no memory and no lock of the program.
    pub fn from_signal(self) {
        let engine = self.engine();
        let mask = engine.process.block_signals();
        if engine.process.is_own() && engine.process.recorded.is_running() {
            dump_or_ask(engine, DumpReason::Signal);
        }
        sys::restore_signals(mask);
    }

    /// Makes the last dump in the handler of a signal that ends the program. Then lets the signal
    /// have its default effect.
    pub fn end_from_signal(self, signal: i32) {
        let engine = self.engine();
        let (process, dumping) = (&engine.process, &engine.dumping);
        process.block_signals();
        if !process.is_own() || !process.recorded.is_running() {
            raise_default(signal);
            return;
        }
        dumping.raise.store(signal, Ordering::Release);
        if is_inside_engine() {
            // An event takes microseconds. If it does not end, a handler has jumped out of it.
            const FORK_TIMEOUT: i64 = 200_000_000;
            let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
            let raised = &dumping.raised;
            let first = raised.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
            if first.is_err_and(|first| now - first > FORK_TIMEOUT) {
                raise_default(signal);
            }
        }
        if dump_or_ask(engine, DumpReason::Terminated) {
            end_by(engine, signal);
        }
    }
}

/// Lets a signal have its default effect, which is mostly the end of the process.
pub fn raise_default(signal: i32) {
    // This is the kernel's structure: handler, flags, restorer, mask. All zero is the default.
    // libc's function for it may be replaced by the program's own.
    let default = [0usize; 4];
    let args = [signal as usize, default.as_ptr() as usize, 0, 8, 0, 0];
    // SAFETY: a valid structure of the kernel's size, then plain libc calls.
    unsafe {
        sys::call(libc::SYS_rt_sigaction, args);
        let mut only = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
    }
}
