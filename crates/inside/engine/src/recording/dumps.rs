//! Makes dumps, in one thread at a time and on a separate stack, and reports their outcome.

use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

use heapprof_abi::process_state;
use heapprof_platform::lock::WaitPolicy;
use heapprof_platform::{sys, tls, trial};
use heapprof_profile::HookedAllocator;

use crate::code::mappings::CodeScanOutcome;
use crate::dump::dump_turn::DumpTurnGuard;
use crate::dump::{AllocatorUsage, DumpError, DumpListener, DumpState, output};
use crate::engine::Engine;
use crate::event::reentrancy_guard::is_inside_engine;
use crate::options::{DumpFormat, RecordingOptions};
use crate::reason::DumpReason;
use crate::recording::snapshot::{self, SnapshotTotals};
use crate::recording::text;
#[cfg(not(shuttle))]
use crate::recording::{audit, delay, last_reading};
use crate::recording::{lines, live, small_child};
use crate::stack::handlers::may_be_in_handler;
use crate::stack::own_stack;

/// The handle for an engine's dumps.
#[derive(Clone, Copy)]
pub struct EngineDumps(&'static Engine);

impl Engine {
    /// Returns the handle for dumps of the recording.
    pub const fn dumps(&'static self) -> EngineDumps {
        EngineDumps(self)
    }
}

impl EngineDumps {
    /// Returns the engine of this handle.
    pub(super) fn engine(self) -> &'static Engine {
        self.0
    }

    /// Writes a dump that the program requests, once no other thread dumps. With a `path`, the dump
    /// is written to this path in pprof's format. Otherwise it is written to the path of the
    /// recording's pattern, in the recording's format. Returns the path of the dump.
    ///
    /// # Errors
    /// See [`DumpError`]. This waits ten seconds for another thread's dump. In a signal handler
    /// that has interrupted an event, it does not wait at all.
    pub fn request(self, path: Option<&[u8]>) -> Result<CString, DumpError> {
        request(self.0, path)
    }

    /// Writes the last dump, or the dump before an exec.
    pub fn dump_at_end(self, reason: DumpReason) {
        dump_only(self.0, reason, self.0.process.wait_timeout());
    }

    /// Returns the current profile, gzipped. The result is empty if no recording was started, if
    /// there is no memory, or if [`request`](Self::request) could not dump now.
    pub fn profile(self, reason: DumpReason) -> Vec<u8> {
        let Self(engine) = self;
        let may_ask = may_ask_allocator(reason);
        let wrappers = |o: &mut Option<RecordingOptions>| o.as_ref().map(|o| o.wrappers.clone());
        let wrappers = engine.with_guard_and_signals_blocked(|| {
            engine.dumping.options.with(&engine.process, wrappers)
        });
        let wrappers = wrappers.unwrap_or_default();
        render(engine, |file| {
            snapshot::write_profile(engine, reason, &wrappers, may_ask, file).map(drop)
        })
    }

    /// Returns the current profile, in gperftools' text format.
    pub fn text_profile(self) -> Vec<u8> {
        render(self.0, |file| text::write(self.0, file).map(drop))
    }

    /// Sets the function that queries the program's allocator for its usage. It is called when a
    /// dump accounts for all memory, but never in a signal handler. Only the first call of
    /// `set_allocator_query` has an effect.
    pub fn set_allocator_query(self, ask: fn() -> Option<AllocatorUsage>) {
        let _ = self.0.dumping.ask_allocator.set(ask);
    }

    /// Adds an allocator inside a file, which profiles name. Returns whether it is new. Two threads
    /// must not add at once.
    pub fn add_hooked_allocator(self, found: HookedAllocator) -> bool {
        self.0.dumping.hooked_allocators.add(found)
    }

    /// Sets the function that receives the outcome of every dump. It is called with signals
    /// blocked. Only the first call of `on_dump` has an effect.
    pub fn on_dump(self, tell: DumpListener) {
        let _ = self.0.dumping.tell.set(tell);
    }
}

fn request(engine: &'static Engine, path: Option<&[u8]>) -> Result<CString, DumpError> {
    let made = wait(engine, |has_waited| {
        let result = dump(engine, DumpReason::Request, path, has_waited);
        // Nothing comes after the last dump.
        let has_ended = has_waited && engine.dumping.ended.load(Ordering::Acquire);
        let is_to_wait = matches!(result, Err(DumpError::Busy)) && !has_ended;
        (!is_to_wait).then_some(result)
    });
    made.unwrap_or(Err(DumpError::Busy))
}

/// Writes a dump and returns its path. If the caller has waited for its turn, and the program has
/// ended meanwhile, nothing is written.
pub(super) fn dump(
    engine: &'static Engine,
    reason: DumpReason,
    path: Option<&[u8]>,
    has_waited: bool,
) -> Result<CString, DumpError> {
    let (process, dumping) = (&engine.process, &engine.dumping);
    // A vfork child shares this memory, so its dump would be taken for the parent's.
    if !process.is_own() {
        return Err(match process.has_recorded() {
            true => DumpError::Busy,
            false => DumpError::NotStarted,
        });
    }
    in_turn(engine, reason, process.wait_timeout(), |turn| match turn {
        // The dump that the caller waited for may have been the last one.
        Some(_) if !(has_waited && dumping.ended.load(Ordering::Acquire)) => {
            make_dump(engine, reason, path)
        }
        _ => Err(DumpError::Busy),
    })
}

/// Runs `work` with the turn to dump, or with `None` if another thread has the turn. Then makes the
/// dump that a signal has requested meanwhile.
fn in_turn<R>(
    engine: &'static Engine,
    reason: DumpReason,
    patience: i64,
    work: impl FnOnce(Option<DumpTurnGuard<'_>>) -> R,
) -> R {
    let turn = &engine.dumping.turn;
    // A handler that ended or left the dump halfway would leave its locks behind.
    engine.with_guard_and_signals_blocked(|| {
        let done = work(turn.take(&engine.process, reason, patience));
        // After the last dump there is nothing to be dumped, and a dump after an exec's would take
        // that one back.
        if !reason.is_last() {
            turn.follow_up(|| make_dump(engine, DumpReason::Signal, None).is_ok());
        }
        done
    })
}

/// Scans the growth of lines and the mapped code, and answers `record --live`. Does nothing if
/// another thread dumps.
pub(super) fn scan(engine: &'static Engine) {
    let began = sys::nanoseconds(libc::CLOCK_MONOTONIC);
    let may_look = engine.process.is_own() && !lines::has_ended(engine);
    let has_seen = may_look && scan_in_turn(engine);
    // Even if nothing came of this scan, the next one is not sooner.
    engine.dumping.due.note_scan(began);
    let took = sys::nanoseconds(libc::CLOCK_MONOTONIC) - began;
    let micros = engine.dumping.elapsed_micros();
    engine.code.seen.note_scan(micros, took / 1000);
    if !has_seen {
        engine.code.seen.request_scan();
    }
}

/// Scans in this thread's turn. Returns whether all code that is mapped was recorded.
fn scan_in_turn(engine: &'static Engine) -> bool {
    let mut reported = CodeScanOutcome::Nothing;
    in_turn(engine, DumpReason::Growth, 0, |turn| {
        if turn.is_none() {
            return;
        }
        in_own_place(engine, &mut || {
            let kept = &engine.process.pages.table_file;
            #[cfg(not(shuttle))]
            if kept.is_file_due(engine.dumping.due.allocated()) {
                delay::end(engine);
            }
            let options = engine.dumping.options.with(&engine.process, |o| o.clone());
            if kept.is_there() {
                reported = engine.remember_code(0);
            }
            if let Some(options) = options.filter(DumpState::is_followed)
                && engine.reserve(snapshot::memory_needed(engine))
            {
                lines::scan(engine, &options, false);
                live::answer(engine, &options);
            }
            false
        });
    });
    reported == CodeScanOutcome::All
}

/// Moves the ledger into a file, if this was delayed. The thread takes the turn to dump for this.
#[cfg(not(shuttle))]
pub(super) fn move_ledger_to_file(engine: &'static Engine) {
    in_turn(engine, DumpReason::Growth, 0, |turn| {
        if turn.is_some() {
            in_own_place(engine, &mut || {
                delay::end(engine);
                false
            });
        }
    });
}

/// The outcome of a dump whose path the caller does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DumpOutcome {
    /// The dump is written or left out, or a note was left for the thread that dumps now.
    Written,
    /// The dump is not written.
    Failed,
    /// The dump is not written yet. The caller should try again when another thread's fork is over.
    Later,
}

/// Writes a dump whose path the caller does not need. The caller may be a signal handler. While
/// another thread forks, this waits for at most `patience` nanoseconds.
pub(super) fn dump_only(engine: &'static Engine, reason: DumpReason, patience: i64) -> DumpOutcome {
    if !engine.process.is_own() {
        return DumpOutcome::Failed;
    }
    in_turn(engine, reason, patience, |turn| match turn {
        Some(_) if small_child::leave_out(engine, reason) => DumpOutcome::Written,
        // The path is freed while forks wait, because they take the allocator's lock as well.
        Some(_) => match make_dump(engine, reason, None).is_ok() {
            true => DumpOutcome::Written,
            false => DumpOutcome::Failed,
        },
        // A thread that ends the program waits for anything except a fork.
        None if reason.is_last() || engine.process.is_forking() => DumpOutcome::Later,
        None if reason == DumpReason::Signal => {
            engine.dumping.turn.note();
            DumpOutcome::Written
        }
        None => DumpOutcome::Failed,
    })
}

/// Makes a dump, and reports its outcome. This thread must have the turn to dump.
fn make_dump(
    engine: &'static Engine,
    reason: DumpReason,
    path: Option<&[u8]>,
) -> Result<CString, DumpError> {
    let result = make_unreported_dump(engine, reason, path);
    // A dump that is put off may come when there is nothing else to do. A caller that asked for it
    // learns of that in another way.
    let is_put_off = matches!(result, Err(DumpError::Busy));
    if let Some(tell) = engine.dumping.tell.get().filter(|_| !is_put_off) {
        tell(&result);
    }
    result
}

fn make_unreported_dump(
    engine: &'static Engine,
    reason: DumpReason,
    path: Option<&[u8]>,
) -> Result<CString, DumpError> {
    let (process, dumping) = (&engine.process, &engine.dumping);
    let has_ended = dumping
        .ended
        .fetch_or(reason.ends_program(), Ordering::AcqRel);
    if has_ended && !reason.is_last() && reason != DumpReason::Request {
        // The process still runs, but has its last profile already.
        return Err(DumpError::Busy);
    }
    if !reason.is_last() && dumping.is_about_to_exec() {
        // This image would end in the middle of the dump.
        if reason == DumpReason::Signal {
            dumping.turn.note();
        }
        return Err(DumpError::Busy);
    }
    let mut result = Err(DumpError::NotStarted);
    let may_ask = may_ask_allocator(reason);
    #[cfg(not(shuttle))]
    let mut is_own = true;
    // All of this is done on the engine's own stack: the program's stack may be a signal's, of a
    // few pages.
    in_own_place(engine, &mut || {
        #[cfg(not(shuttle))]
        if std::mem::take(&mut is_own) {
            // The ledger shows the rights of a process that writes a profile.
            delay::end(engine);
            // A second pass is in a copy of the process, whose memory nobody asks for.
            if reason.ends_program() {
                last_reading::wait(engine);
            }
        }
        let reserved = engine.reserve(snapshot::memory_needed(engine));
        if let Some(options) = dumping.options.with(process, |o| o.clone()) {
            #[cfg(not(shuttle))]
            if reason.ends_program() || reason == DumpReason::Exec {
                audit::report_end(engine, &options, reason == DumpReason::Exec);
            }
            if reserved {
                lines::scan(engine, &options, reason.is_last());
            }
            result = if reserved {
                write(engine, &options, reason, path, may_ask)
            } else {
                Err(DumpError::NoMemory)
            };
            dumping.due.rearm(process, &engine.ledger.access.heap);
        }
        matches!(
            result,
            Err(DumpError::Write(_, libc::EMFILE | libc::ENFILE))
        )
    });
    if let Err(error) = &result {
        in_own_place(engine, &mut || {
            let list = |o: &mut Option<RecordingOptions>| o.as_ref().map(|o| o.output.list.clone());
            let list = dumping.options.with(process, list);
            output::add_to_list(&list.unwrap_or_default(), &failure_entry(error));
            false
        });
    }
    if reason == DumpReason::Exec {
        dumping.note_exec();
    }
    result
}

/// Whether the allocator may be queried for its usage. This is false in a signal handler, which may
/// have interrupted the allocator. The caller must run on the program's stack.
fn may_ask_allocator(reason: DumpReason) -> bool {
    let is_of_signal = matches!(
        reason,
        DumpReason::Signal | DumpReason::Terminated | DumpReason::Exec
    );
    let here = 0u8;
    let here = (&raw const here).addr();
    !is_of_signal && !may_be_in_handler(here, own_stack::find(here, tls::current() as usize))
}

/// Maximum number of files that a dump has open at a time.
const MAX_DUMP_FILES: u32 = 8;

/// Runs `work` on the dump stack. If `work` returns true, the program has used up its file
/// descriptors. Then `work` runs once more in a child, which closes some of its descriptors.
fn in_own_place(engine: &Engine, work: &mut dyn FnMut() -> bool) {
    let mut lacks_files = false;
    engine.dumping.stack.run(|| lacks_files = work());
    // A filter may end the program because of a child, and the first child of a new namespace would
    // be its init.
    if lacks_files && !engine.process.is_filtered() && !trial::makes_first_process() {
        let process = sys::process_id();
        engine.dumping.stack.run_in_child(&mut || {
            tls::work_for(process);
            sys::close_last(MAX_DUMP_FILES);
            work();
        });
        tls::work_for(0);
    }
}

fn write(
    engine: &Engine,
    options: &RecordingOptions,
    reason: DumpReason,
    path: Option<&[u8]>,
    may_ask: bool,
) -> Result<CString, DumpError> {
    let (process, dumping) = (&engine.process, &engine.dumping);
    let named = path.is_some();
    let path = match path {
        Some(path) => CString::new(path).map_err(|_| DumpError::NoOutput)?,
        None => dumping
            .naming
            .with(process, |naming| {
                naming.next_path(&options.output, options.format, reason)
            })
            .ok_or(DumpError::NoOutput)?,
    };
    // A dump to a given path is asked for by our functions only: gperftools' take no path.
    let format = if named {
        DumpFormat::Pprof
    } else {
        options.format
    };
    let failed = |errno| DumpError::Write(path.to_string_lossy().into_owned(), errno);
    let mut totals = SnapshotTotals::default();
    // The code is recorded before the output takes one of the program's last descriptors.
    snapshot::remember_code(engine);
    let written = output::write(&path, options, |file| match format {
        DumpFormat::Pprof => {
            snapshot::write_profile(engine, reason, &options.wrappers, may_ask, file)
                .map(|of| totals = of)
        }
        DumpFormat::Text => text::write(engine, file).map(|of| totals = of),
    })
    .map_err(failed)?;
    if reason == DumpReason::Exec {
        dumping
            .naming
            .with(process, |naming| naming.note_exec_file(written));
    }
    if !options.output.list.is_empty() {
        output::add_to_list(
            &options.output.list,
            &list_entry(engine, &path, reason, &totals),
        );
    }
    let state = match reason {
        DumpReason::Exec => Some(process_state::BEFORE_EXEC),
        reason if reason.ends_program() => Some(process_state::HAS_ENDED),
        _ => None,
    };
    if let Some(state) = state.filter(|_| !named) {
        process.pages.table_file.set_state(state);
    }
    Ok(path)
}

/// Returns the entry of a dump for the list of dumps. Readers of the list find the dump's main
/// facts in the entry, and so need not read the profile.
fn list_entry(
    engine: &Engine,
    path: &CStr,
    reason: DumpReason,
    totals: &SnapshotTotals,
) -> CString {
    let process = &engine.process;
    let mut line = format!(
        "{} {} {} {} {} {} {} {} ",
        sys::process_id(),
        match reason {
            DumpReason::Exec => 2,
            DumpReason::Sandbox => 3,
            reason => u8::from(reason.ends_program()),
        },
        u8::from(process.recorded.is_exact()),
        totals.in_use,
        totals.peak,
        small_child::max_retained_bytes(engine),
        totals.stacks,
        process.dropped.lost_events(),
    )
    .into_bytes();
    // The program may be in another folder than `record`.
    if !path.to_bytes().starts_with(b"/") {
        line.extend_from_slice(&output::working_folder());
        line.push(b'/');
    }
    line.extend_from_slice(path.to_bytes());
    CString::new(line).unwrap_or_default()
}

/// Returns the list's entry for a dump that was not written.
fn failure_entry(error: &DumpError) -> CString {
    let line = match error {
        DumpError::Write(path, errno) => format!("!{errno} {} {path}", sys::process_id()),
        error => format!("!{error}"),
    };
    CString::new(line).unwrap_or_default()
}

/// Returns the profile of this moment, in the format that `write` writes. The result is empty if no
/// recording was started, if there is no memory, or if no dump could be made now.
fn render(
    engine: &'static Engine,
    write: impl Fn(&mut dyn std::io::Write) -> std::io::Result<()>,
) -> Vec<u8> {
    let (process, dumping) = (&engine.process, &engine.dumping);
    let rendered = wait(engine, |_| {
        in_turn(engine, DumpReason::Request, 0, |turn| {
            turn.map(|_turn| {
                let mut bytes = Vec::new();
                in_own_place(engine, &mut || {
                    bytes.clear();
                    let was_started = dumping.options.with(process, |o| o.is_some());
                    let possible = was_started && engine.reserve(snapshot::memory_needed(engine));
                    // Without mappings the profile's addresses would say nothing.
                    let lacks_files =
                        possible && !snapshot::remember_code(engine) && sys::is_short_of_files();
                    if possible && write(&mut bytes).is_err() {
                        bytes.clear();
                    }
                    lacks_files
                });
                bytes
            })
        })
    });
    rendered.unwrap_or_default()
}

/// Longest time that a program that requests a dump waits for dumps of other threads, in
/// nanoseconds. A dump into a pipe takes as long as its reader.
const TURN_TIMEOUT: i64 = 10_000_000_000;
/// Time that a waiting program sleeps between two attempts, in nanoseconds.
const TURN_POLL_INTERVAL: u64 = 1_000_000;

/// Calls `attempt` until it returns a result. `attempt` returns `None` while another thread has the
/// turn to dump. Its argument says whether this thread has waited. Signals of the program are
/// handled during the wait. A thread in the middle of an event, or of fork's handlers, does not
/// wait.
fn wait<R>(engine: &Engine, mut attempt: impl FnMut(bool) -> Option<R>) -> Option<R> {
    let now = || sys::nanoseconds(libc::CLOCK_MONOTONIC);
    let since = now();
    let mut has_waited = false;
    loop {
        let made = attempt(has_waited);
        if made.is_some()
            || is_inside_engine()
            || !engine.process.is_own()
            || now() - since > TURN_TIMEOUT
        {
            return made;
        }
        sys::sleep(TURN_POLL_INTERVAL);
        if engine.process.is_sandboxed() {
            return None;
        }
        has_waited = true;
    }
}
