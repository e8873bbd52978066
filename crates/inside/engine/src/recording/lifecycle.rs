//! Starts and stops recordings, and handles other events in the life of a program.

use std::sync::atomic::Ordering;

use heapprof_platform::{status, sys, trial};

#[cfg(not(shuttle))]
use crate::code::mappings::CodeScanOutcome;
use crate::engine::Engine;
#[cfg(not(shuttle))]
use crate::event::reentrancy_guard::is_inside_engine;
use crate::event::{entry, moment};
use crate::mode::RecordingMode;
use crate::options::{DumpFormat, FrameChoice, MAX_PERIOD, RecordingOptions};
#[cfg(not(shuttle))]
use crate::recording::rights::{self, RightsLeft};
#[cfg(not(shuttle))]
use crate::recording::{audit, delay, dumps, shared_ledger};
use crate::recording::{clock, unload};

/// The engine's handle for events in the life of its process: recordings begin and end, code is
/// unloaded, the program enters a sandbox.
#[derive(Clone, Copy)]
pub struct EngineLifecycle(&'static Engine);

impl Engine {
    /// Returns the handle for starting and ending recordings, and for other events in the program's
    /// life.
    #[inline(always)]
    pub const fn lifecycle(&'static self) -> EngineLifecycle {
        EngineLifecycle(self)
    }
}

/// Number of bytes of memory that the engine reserves for a start.
const MAX_START_MEMORY: usize = 2 << 20;

impl EngineLifecycle {
    /// Arranges that the engine is notified when a thread ends. This is called as early as
    /// possible, and only the first call has an effect.
    pub fn prepare(self) {
        self.0.threads.prepare();
    }

    /// Begins a recording, and discards the data of an earlier one. Returns false if there is no
    /// memory for it, if a thread is interrupted in the middle of an event, or if the period is
    /// longer than [`MAX_PERIOD`].
    pub fn start(self, mut options: RecordingOptions) -> bool {
        let Self(engine) = self;
        let (process, dumping) = (&engine.process, &engine.dumping);
        if options.period > MAX_PERIOD {
            return false;
        }
        engine.with_guard_and_signals_blocked(|| {
            // This ends the delay of an earlier recording, whose options are replaced below.
            #[cfg(not(shuttle))]
            delay::end(engine);
            if !engine.reserve(MAX_START_MEMORY) {
                return false;
            }
            process.mark();
            engine.threads.prepare();
            engine.ledger.access.prepare();
            if status::is_filtered() {
                process.note_filter();
            }
            process.remember_id();
            options.output.use_folder_names();
            dumping.naming.with(process, |naming| {
                naming.prepare(&options.output, options.format, process.name());
            });
            // The text form has no place for names.
            let (frames, by_thread) = match options.format {
                DumpFormat::Pprof => (options.frames, options.by_thread),
                DumpFormat::Text => (FrameChoice::Native, false),
            };
            engine.scripts.providers.set_request(frames, by_thread);
            let tells = &process.tells_command_line;
            tells.store(options.command_line, Ordering::Relaxed);
            #[cfg(not(shuttle))]
            audit::begin(engine, &options);
            #[cfg(not(shuttle))]
            let may_wait = delay::may_begin(engine, &options);
            #[cfg(not(shuttle))]
            let handed = shared_ledger::begin(engine, &options, may_wait);
            #[cfg(not(shuttle))]
            let handed = handed.map(|file| (file, options.clone()));
            let (mode, period, triggers) = (options.mode, options.period, options.triggers);
            let logs = options.logs && mode == RecordingMode::Exact;
            if triggers.live {
                dumping.due.live.begin(&options.output.list);
            }
            dumping.options.with(process, |o| *o = Some(options));
            dumping.begin_time();
            engine.code.entries.find();
            if !logs || !engine.log.begin(&process.pages.table_file) {
                engine.log.end();
            }
            if !engine.restart(mode, period) {
                return false;
            }
            moment::begin_history(engine);
            let heap = &engine.ledger.access.heap;
            dumping.due.arm(process, heap, triggers, engine);
            #[cfg(not(shuttle))]
            if may_wait
                && process.pages.table_file.is_there()
                && !process.pages.table_file.is_shared()
            {
                delay::begin(engine);
            }
            clock::start(engine, &triggers);
            #[cfg(not(shuttle))]
            {
                // What code lay where could not be found out afterwards, and some objects' unwind
                // tables are found only by this scan.
                if engine.remember_code(0) == CodeScanOutcome::All {
                    engine.code.note_lasting(process);
                }
                let handed = handed.as_ref().map(|(file, asked)| (file, asked));
                shared_ledger::publish(engine, handed);
                crate::outside::publish(engine);
            }
            true
        })
    }

    /// Ends the recording. Dumps still contain it.
    pub fn stop(self) {
        #[cfg(not(shuttle))]
        self.move_ledger_to_file();
        if self.0.process.shares_tables() {
            entry::separate_late(self.0);
        }
        self.0.process.recorded.stop();
        self.0.log.end();
        self.0.process.pages.copy(&self.0.process.recorded.mode);
        self.0.dumping.clock.stop();
    }

    /// Sets options for a recording that the program is to start itself.
    pub fn set_default(self, options: RecordingOptions) {
        let (process, dumping) = (&self.0.process, &self.0.dumping);
        // The name is looked up before the program changes its folder.
        process.name();
        dumping.default.with(process, |d| *d = Some(options));
    }

    /// Returns the options that [`set_default`](Self::set_default) set, or none.
    pub fn default_options(self) -> Option<RecordingOptions> {
        let (process, dumping) = (&self.0.process, &self.0.dumping);
        self.0
            .with_guard_and_signals_blocked(|| dumping.default.with(process, |d| d.clone()))
    }

    /// Whether a recording was started, even if it has been stopped meanwhile.
    pub fn was_started(self) -> bool {
        let (process, dumping) = (&self.0.process, &self.0.dumping);
        self.0
            .with_guard_and_signals_blocked(|| dumping.options.with(process, |o| o.is_some()))
    }

    /// Whether allocations are being recorded.
    pub fn is_running(self) -> bool {
        self.0.process.recorded.is_running()
    }

    /// Notes that the process continues after its last profile, so that it will make another last
    /// profile.
    pub fn go_on(self) {
        self.0.dumping.ended.store(false, Ordering::Release);
    }

    /// Whether this is the process that records, and not a vfork child that only shares its memory.
    pub fn is_own_process(self) -> bool {
        self.0.process.is_own()
    }

    /// Notes that the program is at its beginning, so that dlopen has loaded no code yet.
    pub fn begin_with_program(self) {
        self.0.code.lasting.expect_all();
    }

    /// Notes that the loader is still at work, so that the engine can have no thread until
    /// [`resume_clock`](Self::resume_clock).
    pub fn suspend_clock(self) {
        self.0
            .dumping
            .clock
            .is_suspended
            .store(true, Ordering::Relaxed);
    }

    /// Notes that the engine can have threads from now on, and starts a clock that had to wait for
    /// this.
    pub fn resume_clock(self) {
        clock::allow_threads(self.0);
    }

    /// Ends the thread of the interval clock, and waits until it is gone. From then on the
    /// program's allocations check the clock.
    pub fn end_clock(self) {
        clock::end(self.0);
    }

    /// Reports that the process is about to lower its rights. `left` says which rights remain.
    #[cfg(not(shuttle))]
    pub fn lowers_rights(self, left: RightsLeft) {
        rights::report_lower_rights(self.0, left);
    }

    /// Moves the ledger into a file that outlives the process, if this was delayed until now. This
    /// is called before each change that makes it impossible to move the ledger or to hand it over.
    #[cfg(not(shuttle))]
    pub fn move_ledger_to_file(self) {
        let Self(engine) = self;
        let is_waiting = engine.process.pages.table_file.is_waiting();
        if is_waiting && !engine.process.is_sandboxed() && !is_inside_engine() {
            dumps::move_ledger_to_file(engine);
        }
    }

    /// Records the mapped code, and then runs `close`, which may unload code.
    pub fn around_unload<R>(self, close: impl FnOnce() -> R) -> R {
        unload::run_around_unload(self.0, close)
    }

    /// Returns the start address of the loaded object that contains an address.
    pub fn object_at(self, address: usize) -> Option<usize> {
        let Self(engine) = self;
        let module = engine.code.modules.find(&engine.process, address);
        module.map(|module| module.start)
    }

    /// Runs `work` with the reentrancy guard taken, so that the thread's allocations meanwhile are
    /// not recorded.
    pub fn with_reentrancy_guard<R>(self, work: impl FnOnce() -> R) -> R {
        self.0.with_reentrancy_guard(work)
    }

    /// Runs `work` with the reentrancy guard taken and signals blocked. This is for work that takes
    /// locks which a dump needs, too. A signal handler that ends the process makes a dump, so it
    /// must not interrupt the work.
    pub fn with_guard_and_signals_blocked<R>(self, work: impl FnOnce() -> R) -> R {
        self.0.with_guard_and_signals_blocked(work)
    }

    /// Blocks all signals of this thread, unless the program is in a sandbox. Returns the previous
    /// mask, for [`restore_signals`](Self::restore_signals).
    pub fn block_signals(self) -> u64 {
        self.0.process.block_signals()
    }

    /// Restores the mask that [`block_signals`](Self::block_signals) returned.
    pub fn restore_signals(self, before: u64) {
        sys::restore_signals(before);
    }

    /// Whether the program would survive a dump under a filter of system calls, which the system
    /// call `n` installs with `args`. A child of this process tries this. If the child survives,
    /// the engine continues under the filter.
    pub fn survives(self, n: libc::c_long, args: [usize; 6]) -> bool {
        let mask = self.block_signals();
        let survives = trial::survives(n, args);
        self.restore_signals(mask);
        if survives {
            self.0.process.note_filter();
        }
        survives
    }

    /// Notes that any system call of the engine may end the program from now on.
    pub fn enter_sandbox(self) {
        self.0.process.enter_sandbox();
    }

    /// Whether [`enter_sandbox`](Self::enter_sandbox) was called.
    pub fn is_sandboxed(self) -> bool {
        self.0.process.is_sandboxed()
    }

    /// Whether the program has a filter of system calls, or is in a sandbox.
    pub fn is_filtered(self) -> bool {
        self.0.process.is_sandboxed() || self.0.process.is_filtered()
    }
}
