//! The engine: one value with the whole state of a recording.

use heapprof_platform::arena::{EngineAllocator, EngineArena};
use heapprof_platform::lock::ForkLock;
use heapprof_platform::pages::PageSource;

use crate::code::ProgramCode;
use crate::code::mappings::CodeScanOutcome;
use crate::dump::DumpState;
use crate::ledger::Ledger;
use crate::mode::RecordingMode;
use crate::process::EngineProcess;
use crate::stack::script::InterpreterTables;
use crate::stack::walk::Unwinder;
use crate::tables::filter::{self, AddressFilter};
use crate::tables::log::AllocationLog;
use crate::thread::state::ThreadStates;

/// All data of a recording, and all state that is needed for recording.
///
/// The hooks of a process report allocations to one engine, [`ENGINE`]. Callers use an engine
/// through its handles: [`events`](Self::events), [`dumps`](Self::dumps),
/// [`lifecycle`](Self::lifecycle), [`forks`](Self::forks) and [`memory`](Self::memory).
pub struct Engine {
    pub(crate) process: EngineProcess,
    pub(crate) memory: EngineArena,
    pub(crate) code: ProgramCode,
    pub(crate) scripts: InterpreterTables,
    pub(crate) threads: ThreadStates,
    pub(crate) ledger: Ledger,
    pub(crate) dumping: DumpState,
    pub(crate) log: AllocationLog,
}

/// The engine of this process.
pub static ENGINE: Engine = Engine::new(filter::hooks_filter(), PageSource::from_kernel());

/// The locks of an engine, outermost first.
pub(crate) type EngineLocks<'a> = [&'a dyn ForkLock; 20];

impl Engine {
    /// Creates an engine that records nothing yet. `filter` determines which frees the hooks must
    /// report. The engine's tables take their memory from `pages`.
    pub(crate) const fn new(filter: &'static AddressFilter, pages: PageSource) -> Self {
        Self {
            process: EngineProcess::new(pages),
            memory: EngineArena::new(),
            code: ProgramCode::new(),
            scripts: InterpreterTables::new(),
            threads: ThreadStates::new(),
            ledger: Ledger::new(filter),
            dumping: DumpState::new(),
            log: AllocationLog::new(),
        }
    }

    /// Returns the parts of the engine that a walk of a stack uses.
    #[inline(always)]
    pub(crate) fn unwinder(&self) -> Unwinder<'_> {
        Unwinder {
            code: &self.code,
            process: &self.process,
        }
    }

    /// Returns the allocator of the engine's own memory.
    pub(crate) const fn allocator(&self) -> EngineAllocator<'_, EngineProcess> {
        EngineAllocator(&self.memory, &self.process)
    }

    /// Sets `len` bytes of memory aside, so that the engine's next allocations can't fail for lack
    /// of memory. Returns false if there is not enough. This helps only [`ENGINE`], because the
    /// process's allocator falls back to the [`memory`](Self::memory) of that engine.
    pub(crate) fn reserve(&self, len: usize) -> bool {
        self.memory.reserve(&self.process, len)
    }

    /// Adds the currently mapped code to the known code. The memory for this is reserved first, and
    /// another `besides` bytes for the caller's further work.
    pub(crate) fn remember_code(&self, besides: usize) -> CodeScanOutcome {
        let reserve = |bytes: usize| self.reserve(bytes.saturating_add(besides));
        let reported = self.code.mappings.remember(&self.process, reserve);
        if reported == CodeScanOutcome::All {
            self.code.index_frames(&self.process);
        }
        reported
    }

    /// Begins to record, and discards the data of an earlier recording. Returns false if that is
    /// impossible, because a thread is interrupted in the middle of an event.
    pub(crate) fn restart(&self, mode: RecordingMode, period: u64) -> bool {
        // What is known of code and scripts holds for every recording, as does the engine's own
        // memory. The caller prepares dumps and the log for the recording.
        let Self {
            process,
            memory: _,
            code: _,
            scripts,
            threads,
            ledger,
            dumping: _,
            log: _,
        } = self;
        // A period of one byte means every allocation.
        let (mode, period) = match mode == RecordingMode::Exact || period <= 1 {
            true => (RecordingMode::Exact, 1),
            false => (mode, period),
        };
        let _starting = ledger.starting.lock(process);
        // The epoch changes before this waits for the ledger. A thread that has the ledger open and
        // finds the epoch unchanged is in time for the old recording.
        process.recorded.next();
        if !ledger.restart(process, threads, mode) {
            return false;
        }
        scripts.watched.note_again(ledger.filter);
        scripts.pools.clear();
        process.dropped.clear();
        process.recorded.begin(mode, period);
        threads.rewind_all(process);
        true
    }

    /// Continues the recording in a forked child, which has one thread. The child inherits its
    /// parent's live blocks, which count as allocated by the child. If the tables are not `whole`,
    /// they stay as they are.
    ///
    /// # Safety
    /// This is called in the fork handler of the child.
    pub(crate) unsafe fn rebase(&'static self, whole: bool) {
        let Self {
            process,
            memory: _,
            code: _,
            scripts: _,
            threads,
            ledger,
            dumping,
            log: _,
        } = self;
        if !whole {
            threads.forget_others();
        }
        ledger.live.disown();
        ledger.access.prepare();
        process.remember_id();
        if whole {
            process.dropped.clear();
            // SAFETY: the blocks were disowned just now, and the caller's promise.
            unsafe { ledger.rebase(process, threads) };
            dumping.begin_time();
        }
    }

    /// Returns the locks that fork takes, outermost first.
    pub(crate) fn locks(&self) -> EngineLocks<'_> {
        // `process` has no lock of its own.
        let Self {
            process: _,
            memory,
            code,
            scripts,
            threads,
            ledger,
            dumping,
            log: _,
        } = self;
        let [a, b, c, d, e, s, t] = dumping.locks();
        let [f, g, h, i, j] = ledger.locks();
        let [k, l, m, n] = code.locks();
        let ([o], [p]) = (threads.locks(), memory.locks());
        let [q, r] = scripts.names.locks();
        let mut all = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t];
        all.sort_unstable_by_key(|lock| lock.rank());
        all
    }

    /// Returns how many bytes of resident memory belong to the engine: the tables of threads,
    /// stacks, blocks in use and unwind rules, and memory that is allocated for a dump. A reader
    /// should not count these bytes as the program's memory.
    pub(crate) fn resident(&self) -> usize {
        // What dumps keep lies in the engine's own memory.
        let Self {
            process,
            memory,
            code,
            scripts,
            threads,
            ledger,
            dumping: _,
            log: _,
        } = self;
        let states = threads.all().map(|state| state.resident());
        states.sum::<usize>()
            + threads.names.resident(&process.pages)
            + ledger.resident(process)
            + code.rules.resident(process)
            + scripts.names.resident(process)
            + memory.resident(process)
    }
}
