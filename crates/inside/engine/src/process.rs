//! State of the recorded process that every part of the engine needs.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
};

use heapprof_platform::lock::WaitPolicy;
use heapprof_platform::pages::PageSource;
use heapprof_platform::program;
use heapprof_platform::sys::{self, NOT_BLOCKED, PAGE_SIZE};

use crate::drop_counters::DroppedEvents;
use crate::mode::RecordingState;

/// The engine's data about the process that it records. Functions that wait for a lock, count
/// dropped events, or need memory for a table get this value.
pub(crate) struct EngineProcess {
    pub(crate) recorded: RecordingState,
    pub(crate) dropped: DroppedEvents,
    /// Source of the tables' memory.
    pub(crate) pages: PageSource,
    /// Id of the process that records. A vfork child shares this memory, but is another process.
    pub(crate) id: AtomicI32,
    /// State that a forking thread must restore.
    pub(crate) fork: ForkRecord,
    /// Whether a thread is forking. The forking thread has all locks while the kernel copies the
    /// process.
    forking: AtomicBool,
    /// Whether this process was forked while another thread of its parent may have had a lock. Such
    /// a process records nothing any more.
    abandoned: AtomicBool,
    /// Number of waits that timed out.
    in_vain: AtomicU32,
    /// A page that the kernel wipes in every child that gets a copy of the memory. The engine
    /// recognizes such a child by the wiped page.
    marked: AtomicPtr<AtomicU32>,
    /// Whether the program installed a filter of system calls. Under the filter, a system call that
    /// was not tried before may end the program.
    filtered: AtomicBool,
    /// The cached result of [`may_share_ledger`](Self::may_share_ledger).
    keeps: AtomicU8,
    /// Whether the program has sandboxed itself, so that the engine makes no system call any more.
    /// Code that would make one checks this first.
    is_in_sandbox: AtomicBool,
    name: OnceLock<Vec<u8>>,
    /// Whether the ledger keeper has got the process's executable. The process itself may have sent
    /// it, or a process from which it was forked.
    pub(crate) executable_handed: AtomicBool,
    /// Whether profiles contain the whole command line.
    pub(crate) tells_command_line: AtomicBool,
    /// Time of the last answer of `record` to any process that waits for it: of the auditor, or of
    /// the ledger keeper before an end. It is in memory that all these processes share.
    pub(crate) last_answer: OnceLock<&'static AtomicU64>,
    /// Number of reports that did not reach the auditor.
    pub(crate) unreported_audits: AtomicU32,
}

impl EngineProcess {
    /// Makes the state of a process that is not recorded. Its tables get their memory from `pages`.
    pub(crate) const fn new(pages: PageSource) -> Self {
        Self {
            recorded: RecordingState::new(),
            dropped: DroppedEvents::new(),
            pages,
            id: AtomicI32::new(0),
            fork: ForkRecord::new(),
            forking: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            marked: AtomicPtr::new(std::ptr::null_mut()),
            last_answer: OnceLock::new(),
            unreported_audits: AtomicU32::new(0),
            filtered: AtomicBool::new(false),
            keeps: AtomicU8::new(0),
            is_in_sandbox: AtomicBool::new(false),
            name: OnceLock::new(),
            executable_handed: AtomicBool::new(false),
            tells_command_line: AtomicBool::new(false),
        }
    }

    /// Stores the id of this process as the id of the process that records.
    pub(crate) fn remember_id(&self) {
        self.id.store(sys::process_id(), Ordering::Relaxed);
    }

    /// Whether a process ever recorded with this state.
    pub(crate) fn has_recorded(&self) -> bool {
        self.id.load(Ordering::Relaxed) != 0
    }

    /// Whether the caller is the process that records, and not a vfork child that only shares its
    /// memory.
    pub(crate) fn is_own(&self) -> bool {
        self.id.load(Ordering::Relaxed) == sys::process_id()
    }

    /// Sets whether a thread that forks has the locks.
    pub(crate) fn set_forking(&self, forking: bool) {
        self.forking.store(forking, Ordering::SeqCst);
    }

    /// Makes every lock count as free from now on, and stops the recording. This is called in a
    /// child that has one thread.
    pub(crate) fn abandon(&self) {
        self.recorded.stop();
        self.abandoned.store(true, Ordering::SeqCst);
    }

    /// Marks this process as known to the engine. A copy that is made without fork's handlers lacks
    /// the mark. This is called before the first event, and in each child in which fork's handlers
    /// run.
    pub(crate) fn mark(&self) {
        let mut page = self.marked.load(Ordering::Acquire);
        if page.is_null() {
            page = sys::map(PAGE_SIZE).cast();
            if page.is_null() || !sys::wipe_on_fork(page.cast(), PAGE_SIZE) {
                return;
            }
            self.marked.store(page, Ordering::Release);
        }
        // SAFETY: a page of our own that is never unmapped.
        unsafe { (*page).store(1, Ordering::Release) };
    }

    /// Whether the engine can recognize a copy of this process.
    pub(crate) fn is_marked(&self) -> bool {
        !self.marked.load(Ordering::Acquire).is_null()
    }

    /// Whether this is a copy of the process that was made without fork's handlers (clone, _Fork).
    #[inline(always)]
    fn is_orphan(&self) -> bool {
        // SAFETY: null, or a page of our own that is never unmapped.
        let page = unsafe { self.marked.load(Ordering::Acquire).as_ref() };
        page.is_some_and(|page| page.load(Ordering::Acquire) == 0)
    }

    /// Whether this process is a copy that still uses the tables of its parent. This happens if
    /// fork's handlers did not run, or if there was no memory for separate tables.
    #[inline(always)]
    pub(crate) fn shares_tables(&self) -> bool {
        self.pages.table_file.is_shared() && self.is_orphan()
    }

    /// Whether the filters of system calls allow that the ledger is kept in a file. `find` tests
    /// this, and is called once for each filter.
    pub(crate) fn may_share_ledger(&self, find: impl FnOnce() -> bool) -> bool {
        const UNKNOWN: u8 = 0;
        const NO: u8 = 1;
        const YES: u8 = 2;
        match self.keeps.load(Ordering::Relaxed) {
            UNKNOWN => {
                let may = find();
                self.keeps
                    .store(if may { YES } else { NO }, Ordering::Relaxed);
                may
            }
            known => known == YES,
        }
    }

    /// Notes that there is a filter of system calls.
    pub(crate) fn note_filter(&self) {
        self.keeps.store(0, Ordering::Relaxed);
        self.filtered.store(true, Ordering::Relaxed);
    }

    /// Whether there is a filter of system calls, as far as the engine knows.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filtered.load(Ordering::Relaxed)
    }

    /// Notes that from now on any system call of the engine may end the program.
    pub(crate) fn enter_sandbox(&self) {
        self.is_in_sandbox.store(true, Ordering::Relaxed);
    }

    /// Whether [`enter_sandbox`](Self::enter_sandbox) was called.
    pub(crate) fn is_sandboxed(&self) -> bool {
        self.is_in_sandbox.load(Ordering::Relaxed)
    }

    /// Blocks all signals of this thread, unless the program has sandboxed itself. Returns the
    /// previous mask, for [`sys::restore_signals`].
    pub(crate) fn block_signals(&self) -> u64 {
        match self.is_sandboxed() {
            true => NOT_BLOCKED,
            false => sys::block_signals(),
        }
    }

    /// Returns the program's name at the time of the first call. The first call is made at the
    /// start, before the program changes its working folder.
    pub(crate) fn name(&self) -> &[u8] {
        self.name.get_or_init(program::name)
    }
}

impl WaitPolicy for EngineProcess {
    /// Whether [`abandon`](Self::abandon) was called. Calls it first if this is a child that was
    /// made without fork's handlers.
    fn is_abandoned(&self) -> bool {
        if self.is_orphan() && !self.abandoned.load(Ordering::Relaxed) {
            self.abandon();
        }
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether a thread that forks has the locks.
    fn is_forking(&self) -> bool {
        self.forking.load(Ordering::SeqCst)
    }

    /// Returns the longest time that an event may wait for another event, in nanoseconds. The time
    /// gets shorter with each wait that timed out, because a program that delayed one event will
    /// delay others.
    fn wait_timeout(&self) -> i64 {
        const FIRST_TIMEOUT: i64 = 2_000_000_000;
        const MIN_TIMEOUT: i64 = 20_000_000;
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        (FIRST_TIMEOUT >> in_vain.saturating_mul(2).min(62)).max(MIN_TIMEOUT)
    }

    /// Notes that a thread has given up waiting after the time
    /// [`wait_timeout`](Self::wait_timeout).
    fn note_timeout(&self) {
        let more = |n: u32| n.checked_add(1);
        let _ = self
            .in_vain
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

/// State that a forking thread must restore after the fork. Only the thread that has the locks
/// accesses it, in the parent or in the child.
pub(crate) struct ForkRecord {
    mask: AtomicU64,
    locks: AtomicU32,
    streams: AtomicBool,
    counting: AtomicBool,
    keeping: AtomicBool,
    whole: AtomicBool,
    is_closing: AtomicBool,
}

/// The content of a [`ForkRecord`].
#[derive(Clone, Copy)]
pub(crate) struct ForkState {
    /// The signal mask to restore.
    pub(crate) mask: u64,
    /// The locks that the thread has taken, with one bit for each lock.
    pub(crate) locks: u32,
    /// Whether the thread has locked libc's streams.
    pub(crate) streams: bool,
    /// Whether the thread has the lock of the heap's size.
    pub(crate) counting: bool,
    /// Whether the thread has locked the pieces of the file in which tables are kept.
    pub(crate) keeping: bool,
    /// Whether the tables were at rest when the thread forked.
    pub(crate) whole: bool,
    /// Whether the thread that forks is in dlclose, which is possible because a library's
    /// destructor may fork.
    pub(crate) is_closing: bool,
}

impl ForkRecord {
    const fn new() -> Self {
        Self {
            mask: AtomicU64::new(0),
            locks: AtomicU32::new(0),
            streams: AtomicBool::new(false),
            counting: AtomicBool::new(false),
            keeping: AtomicBool::new(false),
            whole: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Saves the state until the fork is over.
    pub(crate) fn save(&self, kept: ForkState) {
        self.mask.store(kept.mask, Ordering::Relaxed);
        self.locks.store(kept.locks, Ordering::Relaxed);
        self.streams.store(kept.streams, Ordering::Relaxed);
        self.counting.store(kept.counting, Ordering::Relaxed);
        self.keeping.store(kept.keeping, Ordering::Relaxed);
        self.whole.store(kept.whole, Ordering::Relaxed);
        self.is_closing.store(kept.is_closing, Ordering::Relaxed);
    }

    /// Returns the saved state.
    pub(crate) fn load(&self) -> ForkState {
        ForkState {
            mask: self.mask.load(Ordering::Relaxed),
            locks: self.locks.load(Ordering::Relaxed),
            streams: self.streams.load(Ordering::Relaxed),
            counting: self.counting.load(Ordering::Relaxed),
            keeping: self.keeping.load(Ordering::Relaxed),
            whole: self.whole.load(Ordering::Relaxed),
            is_closing: self.is_closing.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use heapprof_platform::lock::{FutexLock, rank};

    use super::*;

    #[test]
    fn who_waited_in_vain_waits_less_the_next_time() {
        let process = EngineProcess::new(PageSource::from_kernel());
        let lock = FutexLock::<{ rank::OPTIONS }>::new();
        let held = lock.lock(&process);
        let now = || sys::nanoseconds(libc::CLOCK_MONOTONIC);
        let (begin, patience_then) = (now(), process.wait_timeout());
        let other = || lock.lock_in_time(&process).is_none();
        assert!(std::thread::scope(|scope| scope
            .spawn(other)
            .join()
            .unwrap()));
        assert!(now() - begin >= patience_then && process.wait_timeout() < patience_then);
        drop(held);
        assert!(lock.lock_in_time(&process).is_some());
    }
}
