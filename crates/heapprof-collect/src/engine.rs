//! The engine's state: what is recorded, by which tables, and whether a thread is inside the collector.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::access;
use crate::counters::{Cell, Process};
use crate::dropped::Dropped;
use crate::filter;
use crate::live::LiveTable;
use crate::lock::Lock;
use crate::sampler;
use crate::stacks::Stacks;
use crate::sys;
use crate::thread::{self, ThreadState};
use crate::tls::{self, Block, QUIET};
use crate::trigger;

/// Whether and how allocations are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Nothing is recorded.
    Off = 0,
    /// One allocation in about `period` bytes.
    Sampled = 1,
    /// Every allocation.
    Exact = 2,
}

static MODE: AtomicU8 = AtomicU8::new(Mode::Off as u8);
/// Which recording this is, from 1.
static RECORDING: AtomicU64 = AtomicU64::new(0);
static PERIOD: AtomicU64 = AtomicU64::new(1);
pub(crate) static STACKS: Stacks = Stacks::new();
pub(crate) static LIVE: LiveTable = LiveTable::new();
pub(crate) static PROCESS: Process = Process::new();
pub(crate) static DROPPED: Dropped = Dropped::new();

#[cold]
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The mode now.
#[inline]
pub fn mode() -> Mode {
    match MODE.load(Ordering::Acquire) {
        1 => Mode::Sampled,
        2 => Mode::Exact,
        _ => Mode::Off,
    }
}

/// Average bytes between samples; 1 in exact mode.
pub(crate) fn period() -> u64 {
    PERIOD.load(Ordering::Relaxed)
}

/// By how many bits the books' bytes are finer than a byte.
pub(crate) fn byte_bits() -> u32 {
    if is_exact() { 0 } else { sampler::BYTE_BITS }
}

/// Whether the recording, running or stopped, is of every allocation.
#[inline]
pub(crate) fn is_exact() -> bool {
    period() == 1
}

/// Held while a recording begins: what it clears, another one must not fill meanwhile.
static STARTING: Lock = Lock::new();

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static Lock {
    &STARTING
}

/// Begins to record. What an earlier start recorded is forgotten. False when that can't be, as a thread is held up in the
/// middle of an event.
pub(crate) fn begin(mode: Mode, period: u64) -> bool {
    // One in every byte is every allocation.
    let exact = mode == Mode::Exact || period <= 1;
    let (mode, period) = if exact {
        (Mode::Exact, 1)
    } else {
        (mode, period)
    };
    let _starting = STARTING.lock();
    MODE.store(Mode::Off as u8, Ordering::SeqCst);
    // Raised before the books are waited for: who finds it unchanged with the books open is in time for the old ones.
    RECORDING.fetch_add(1, Ordering::SeqCst);
    crate::regions::clear();
    {
        let _changing = access::lock().lock();
        access::collect_budgets();
        if !access::share(LIVE.owners()) || !LIVE.clear() {
            return false;
        }
    }
    reset_cells(|_| [0, 0]);
    PROCESS.restart(0);
    PERIOD.store(period, Ordering::SeqCst);
    filter::fill(if exact { filter::STUCK } else { 0 });
    MODE.store(mode as u8, Ordering::SeqCst);
    thread::rewind_all();
    true
}

/// Starts every sum anew, from what `in_use` says of each.
fn reset_cells(in_use: impl Fn(&Cell) -> [i64; 2]) {
    for state in thread::all() {
        for stack in 0..STACKS.len() as usize {
            // SAFETY: cells are mapped for good; nobody adds to them while this runs.
            if let Some(cell) = unsafe { state.cells.get(stack).as_ref() } {
                if cell.is_untouched() {
                    continue;
                }
                cell.allocated.set(in_use(cell));
                cell.freed.set([0, 0]);
                cell.at_peak.set([0, 0]);
                cell.fall.store(0, Ordering::Relaxed);
            }
            // SAFETY: as above.
            if let Some(temporary) = unsafe { state.temporary.get(stack).as_ref() } {
                temporary.0.set([0, 0]);
            }
        }
    }
}

/// In a forked child: what is in use was inherited, and counts as allocated by it; the peak starts there.
pub(crate) fn rebase() {
    reset_cells(Cell::in_use);
    PROCESS.restart(PROCESS.in_use.load(Ordering::Relaxed));
}

/// From now on this thread is inside the collector, until [`end_apart`].
pub(crate) fn hold_apart() {
    // SAFETY: the block is this thread's own.
    unsafe {
        let block = tls::current();
        (*block).held = (*block).countdown;
        (*block).forking = true;
        enter(block);
    }
}

/// Whether this thread is between [`hold_apart`] and [`end_apart`].
pub(crate) fn is_held() -> bool {
    // SAFETY: the block is this thread's own.
    unsafe { (*tls::current()).forking }
}

/// Ends what [`hold_apart`] began.
pub(crate) fn end_apart() {
    // SAFETY: the block is this thread's own.
    unsafe {
        let block = tls::current();
        (*block).countdown = (*block).held;
        (*block).forking = false;
        (*block).busy = 0;
    }
    if trigger::pending() {
        trigger::run();
    }
}

/// Ends recording; what was recorded can still be dumped.
pub(crate) fn stop() {
    MODE.store(Mode::Off as u8, Ordering::SeqCst);
}

/// Runs `work` as the collector's own: what it allocates is not recorded.
pub fn apart<R>(work: impl FnOnce() -> R) -> R {
    let block = tls::current();
    // SAFETY: the block is this thread's own.
    unsafe {
        let (busy, countdown) = ((*block).busy, (*block).countdown);
        let recording = RECORDING.load(Ordering::Relaxed);
        (*block).busy = 1;
        (*block).countdown = QUIET;
        let result = work();
        (*block).busy = busy;
        let same = recording == RECORDING.load(Ordering::Relaxed);
        // A recording that began meanwhile begins for this thread too.
        (*block).countdown = if same || busy != 0 { countdown } else { 0 };
        if busy == 0 && trigger::pending() {
            trigger::run();
        }
        result
    }
}

/// As [`apart`], for what takes locks that a dump needs too: no signal handler, which may end the process and so dump,
/// comes in between.
pub(crate) fn guarded<R>(work: impl FnOnce() -> R) -> R {
    let mask = sys::block_signals();
    let result = apart(work);
    sys::restore_signals(mask);
    result
}

/// Whether this thread is inside the collector.
pub fn is_apart() -> bool {
    // SAFETY: the block is this thread's own.
    unsafe { (*tls::current()).busy != 0 }
}

/// Takes `size` bytes off the countdown; whether it ran out, so that [`allocate`](crate::event::allocate) must be told.
#[inline(always)]
pub fn charge(size: usize) -> bool {
    let block = tls::current();
    // SAFETY: the block is this thread's own.
    unsafe {
        let (left, ran_out) = (*block)
            .countdown
            .overflowing_sub((size as u64).saturating_add(1));
        (*block).countdown = left;
        ran_out
    }
}

/// This thread's tables; null when there is no memory for them.
#[inline]
pub(crate) unsafe fn state_of(block: *mut Block) -> *const ThreadState {
    // SAFETY: the block is this thread's own.
    unsafe {
        if (*block).state.is_null() {
            first_event(block);
        }
        (*block).state
    }
}

#[cold]
unsafe fn first_event(block: *mut Block) {
    // SAFETY: the block is this thread's own; busy keeps what libc allocates here out.
    unsafe {
        let busy = std::mem::replace(&mut (*block).busy, 1);
        (*block).state = ThreadState::acquire();
        // The block of a thread whose end is not noticed is not kept: it may be gone.
        if !(*block).ended && !(*block).state.is_null() && thread::watch_end(block) {
            thread::know(block);
        }
        (*block).busy = busy;
    }
}

#[inline(always)]
pub(crate) unsafe fn enter(block: *mut Block) {
    // SAFETY: the block is this thread's own.
    unsafe {
        (*block).busy = 1;
        (*block).countdown = QUIET;
    }
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

#[inline(always)]
pub(crate) unsafe fn leave(block: *mut Block, countdown: u64) {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    // SAFETY: the block is this thread's own.
    unsafe {
        // Still busy: a handler that comes in between must find no state that is another thread's by then.
        if (*block).ended {
            release_late(block);
        }
        (*block).countdown = countdown;
        (*block).busy = 0;
    }
    if trigger::pending() {
        trigger::run();
    }
}

/// After its thread's end was announced, a state is borrowed for one event at a time.
///
/// # Safety
/// The block is this thread's own, and busy.
#[cold]
pub(crate) unsafe fn release_late(block: *mut Block) {
    // SAFETY: the block is this thread's own.
    unsafe {
        if let Some(state) = (*block).state.as_ref() {
            (*block).state = std::ptr::null();
            state.release();
        }
    }
}

/// Which recording this is. Read before the mode, it is of that mode or an earlier one.
#[inline]
pub(crate) fn recording() -> u64 {
    RECORDING.load(Ordering::Acquire)
}

/// Whether this is the thread's first countdown of this recording: it ran out for no allocation's sake.
pub(crate) fn begins(block: *mut Block) -> bool {
    let recording = RECORDING.load(Ordering::Relaxed);
    // SAFETY: the block is this thread's own.
    unsafe { std::mem::replace(&mut (*block).recording, recording) != recording }
}
