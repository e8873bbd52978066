//! State that lasts from one dump to the next: options, names, turns, triggers, and the program's
//! end.

pub(crate) mod clock;
pub(crate) mod dump_schedule;
pub(crate) mod dump_turn;
pub(crate) mod growth_reports;
pub(crate) mod history;
pub(crate) mod hooked_allocators;
pub(crate) mod live;
pub(crate) mod output;

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::stack_switch::OwnStack;
use heapprof_platform::sys;

use crate::options::{DumpTriggers, RecordingOptions};
use crate::process::EngineProcess;
use clock::IntervalClock;
use dump_schedule::DumpSchedule;
use dump_turn::DumpTurn;
use history::RecordingHistory;
use hooked_allocators::HookedAllocatorList;
use output::DumpNaming;

/// The reason why a dump was not written.
#[derive(Debug)]
pub enum DumpError {
    /// Nothing was recorded since the program began.
    NotStarted,
    /// No dump can be made now. Another thread dumps, forks or calls exec, or the program has
    /// ended, or this is a child that shares its parent's memory.
    Busy,
    /// The recording writes no files.
    NoOutput,
    /// There is no memory for a dump.
    NoMemory,
    /// The file could not be written. The fields are its path and the errno.
    Write(String, i32),
}

impl std::fmt::Display for DumpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotStarted => write!(f, "nothing is being recorded: start a recording first"),
            Self::Busy => write!(
                f,
                "no dump can be written now: another thread is writing one, forking or ending the \
                 program"
            ),
            Self::NoMemory => write!(f, "there is no memory to write a profile with"),
            Self::NoOutput => write!(f, "the recording has no output path"),
            Self::Write(path, errno) => {
                // libc would look up the errno's text in the program's locale, with the program's
                // malloc.
                write!(f, "{path}: {} (os error {errno})", sys::error_text(*errno))
            }
        }
    }
}

impl std::error::Error for DumpError {}

/// A function that receives the outcome of each dump.
pub(crate) type DumpListener = fn(&Result<CString, DumpError>);

/// An allocator's report of its memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorUsage {
    /// Bytes that the allocator has from the kernel.
    pub mapped: u64,
    /// Bytes of `mapped` that are in the allocator's lists of free blocks.
    pub free: u64,
}

/// A function that returns the memory usage of the program's allocator. It may take the allocator's
/// locks.
pub(crate) type AllocatorQuery = fn() -> Option<AllocatorUsage>;

/// The engine's state for its dumps.
pub(crate) struct DumpState {
    pub(crate) options: LockedValue<{ rank::OPTIONS }, Option<RecordingOptions>>,
    /// Options for a recording that the program is to start itself.
    pub(crate) default: LockedValue<{ rank::DEFAULT_OPTIONS }, Option<RecordingOptions>>,
    pub(crate) naming: LockedValue<{ rank::NAMING }, DumpNaming>,
    pub(crate) turn: DumpTurn,
    pub(crate) due: DumpSchedule,
    pub(crate) history: RecordingHistory,
    pub(crate) clock: IntervalClock,
    pub(crate) stack: OwnStack,
    pub(crate) tell: OnceLock<DumpListener>,
    pub(crate) ask_allocator: OnceLock<AllocatorQuery>,
    /// The allocators inside files.
    pub(crate) hooked_allocators: HookedAllocatorList,
    /// Whether the process has begun to make its last profile.
    pub(crate) ended: AtomicBool,
    exec: LastExec,
    /// Time, in nanoseconds, of the first program-ending signal that came in the middle of an
    /// event; 0 if no such signal came.
    pub(crate) raised: AtomicI64,
    /// The signal that is raised again when the pending dump is written.
    pub(crate) raise: AtomicI32,
    /// Time at which the recording began, in nanoseconds of the real-time clock. The field `since`
    /// is the same time by the monotonic clock.
    pub(crate) started: AtomicI64,
    pub(crate) since: AtomicI64,
}

/// The last exec for which a dump was made: its time, in nanoseconds, and its thread.
struct LastExec {
    at: AtomicI64,
    thread: AtomicI32,
}

/// Longest time that an exec may take, in nanoseconds. An exec that takes longer counts as failed.
const EXEC_TIMEOUT: i64 = 500_000_000;

impl DumpState {
    /// Creates the state before any recording and any dump.
    pub(crate) const fn new() -> Self {
        Self {
            options: LockedValue::new(None),
            default: LockedValue::new(None),
            naming: LockedValue::new(DumpNaming::new()),
            turn: DumpTurn::new(),
            due: DumpSchedule::new(),
            history: RecordingHistory::new(),
            clock: IntervalClock::new(),
            stack: OwnStack::new(),
            tell: OnceLock::new(),
            ask_allocator: OnceLock::new(),
            hooked_allocators: HookedAllocatorList::new(),
            ended: AtomicBool::new(false),
            exec: LastExec {
                at: AtomicI64::new(i64::MIN),
                thread: AtomicI32::new(0),
            },
            raised: AtomicI64::new(0),
            raise: AtomicI32::new(0),
            started: AtomicI64::new(0),
            since: AtomicI64::new(0),
        }
    }

    /// Stores the current time as the beginning of the recording.
    pub(crate) fn begin_time(&self) {
        let now = sys::nanoseconds;
        self.started
            .store(now(libc::CLOCK_REALTIME), Ordering::Relaxed);
        self.since
            .store(now(libc::CLOCK_MONOTONIC), Ordering::Relaxed);
    }

    /// Returns when the recording began, and how long it has taken, both in nanoseconds.
    pub(crate) fn times(&self) -> (i64, i64) {
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        (
            self.started.load(Ordering::Relaxed),
            now - self.since.load(Ordering::Relaxed),
        )
    }

    /// Returns how long the recording has taken, in microseconds.
    pub(crate) fn elapsed_micros(&self) -> i64 {
        self.times().1 / 1000
    }

    /// Returns the triggers of the recording's dumps.
    pub(crate) fn triggers(&self, process: &EngineProcess) -> Option<DumpTriggers> {
        self.options
            .with(process, |o| o.as_ref().map(|o| o.triggers))
    }

    /// Records that this thread has made a dump because it calls exec.
    pub(crate) fn note_exec(&self) {
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        self.exec.thread.store(sys::thread_id(), Ordering::Relaxed);
        self.exec.at.store(now, Ordering::Relaxed);
    }

    /// Whether another thread is calling exec. False if this thread was the last to call exec: this
    /// thread still runs, so its exec has failed.
    pub(crate) fn is_about_to_exec(&self) -> bool {
        let since = self.exec.at.load(Ordering::Relaxed);
        since != i64::MIN
            && sys::nanoseconds(libc::CLOCK_MONOTONIC).saturating_sub(since) < EXEC_TIMEOUT
            && self.exec.thread.load(Ordering::Relaxed) != sys::thread_id()
    }

    /// Forgets pending requests in a forked child, because they belong to its parent.
    pub(crate) fn reset_in_child(&self) {
        // The names and the clock are reset when the locks are free: `DumpState::begin_child`.
        let Self {
            options: _,
            default: _,
            naming: _,
            turn,
            due,
            // The history begins anew together with the time of the recording.
            history: _,
            clock: _,
            stack: _,
            tell: _,
            ask_allocator: _,
            hooked_allocators: _,
            ended,
            exec,
            raised,
            raise,
            started: _,
            since: _,
        } = self;
        due.reset_in_child();
        turn.reset_in_child();
        raise.store(0, Ordering::Release);
        raised.store(0, Ordering::Release);
        exec.at.store(i64::MIN, Ordering::Relaxed);
        ended.store(false, Ordering::Release);
    }

    /// Returns the recording's options, if forked children are to continue to record.
    pub(crate) fn options_for_children(&self, process: &EngineProcess) -> Option<RecordingOptions> {
        let asked = self.options.with(process, |o| o.clone());
        asked.filter(|asked| asked.follow_children)
    }

    /// Whether the recording reports the growth of lines or answers `record --live`.
    pub(crate) fn is_followed(options: &RecordingOptions) -> bool {
        options.triggers.line_growth.is_some() || options.triggers.live
    }

    /// Adapts the state in a forked child. Returns whether the child continues to record. If not, a
    /// profile of the child only shows its parent's data.
    pub(crate) fn begin_child(&self, process: &EngineProcess) -> bool {
        self.naming.with(process, DumpNaming::reset_in_child);
        let asked =
            |o: &mut Option<RecordingOptions>| o.as_ref().map(|o| (o.triggers, o.follow_children));
        let (triggers, follow) = self.options.with(process, asked).unzip();
        // A thread that is made here would surprise the child.
        if self.clock.reset_in_child()
            && let Some(triggers) = triggers
        {
            self.due.count_time_inline(&triggers);
        }
        follow != Some(false)
    }

    /// Returns the locks that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 7] {
        let Self {
            options,
            default,
            naming,
            turn,
            due,
            history,
            clock: _,
            stack: _,
            tell: _,
            ask_allocator: _,
            hooked_allocators: _,
            ended: _,
            exec: _,
            raised: _,
            raise: _,
            started: _,
            since: _,
        } = self;
        let ([dumping], [triggers, reported]) = (turn.locks(), due.locks());
        [
            dumping,
            &options.lock,
            &naming.lock,
            &default.lock,
            triggers,
            reported,
            history.lock(),
        ]
    }
}
