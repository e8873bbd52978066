//! What happens at an allocation and at a free: the engine's state and its two modes.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::capture::{self, Captured, Frame};
use crate::counters::{Cell, Process, Weight};
use crate::dropped::Dropped;
use crate::filter;
use crate::live::{Block as LiveBlock, Full, LiveTable, hint};
use crate::mappings;
use crate::owner::{self, Access};
use crate::sampler;
use crate::stacks::Stacks;
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
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The mode now.
#[inline]
pub fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        1 => Mode::Sampled,
        2 => Mode::Exact,
        _ => Mode::Off,
    }
}

/// Average bytes between samples; 1 in exact mode.
pub(crate) fn period() -> u64 {
    PERIOD.load(Ordering::Relaxed)
}

/// Begins to record. What an earlier start recorded is forgotten.
pub(crate) fn begin(mode: Mode, period: u64) {
    MODE.store(Mode::Off as u8, Ordering::SeqCst);
    {
        let _changing = owner::lock().lock();
        owner::collect_budgets();
    }
    reset_cells(|_| [0, 0]);
    crate::regions::clear();
    LIVE.clear();
    PROCESS.restart(0);
    PERIOD.store(
        if mode == Mode::Exact {
            1
        } else {
            period.max(1)
        },
        Ordering::SeqCst,
    );
    filter::fill(if mode == Mode::Exact {
        filter::STUCK
    } else {
        0
    });
    RECORDING.fetch_add(1, Ordering::SeqCst);
    MODE.store(mode as u8, Ordering::SeqCst);
    thread::rewind_all();
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

/// Whether this thread is inside the collector.
pub fn is_apart() -> bool {
    // SAFETY: the block is this thread's own.
    unsafe { (*tls::current()).busy != 0 }
}

/// Takes `size` bytes off the countdown; whether it ran out, so that [`allocate`] must be told.
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
pub(crate) unsafe fn state_of(block: *mut Block) -> *mut ThreadState {
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
        if (*block).ended == 0 && !(*block).state.is_null() {
            thread::watch_end(block);
            thread::know(block);
        }
        (*block).busy = busy;
    }
}

#[inline(always)]
unsafe fn enter(block: *mut Block) {
    // SAFETY: the block is this thread's own.
    unsafe {
        (*block).busy = 1;
        (*block).countdown = QUIET;
    }
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

#[inline(always)]
unsafe fn leave(block: *mut Block, countdown: u64) {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    // SAFETY: the block is this thread's own.
    unsafe {
        (*block).countdown = countdown;
        (*block).busy = 0;
        if (*block).ended != 0 {
            release_late(block);
        }
    }
    if trigger::pending() {
        trigger::run();
    }
}

/// After its thread's end was announced, a state is borrowed for one event at a time.
#[cold]
unsafe fn release_late(block: *mut Block) {
    // SAFETY: the block is this thread's own.
    unsafe {
        if (*block).ended >= 4
            && let Some(state) = (*block).state.as_ref()
        {
            (*block).state = std::ptr::null_mut();
            state.release();
        }
    }
}

/// An allocation that the countdown chose: records what `real` gives.
///
/// `frame` is where the program called.
#[inline]
pub fn allocate(size: usize, frame: Frame, real: impl FnOnce() -> *mut u8) -> *mut u8 {
    let block = tls::current();
    // SAFETY: the block, and through `busy` its state, are this thread's own.
    unsafe {
        if (*block).busy != 0 {
            if mode() != Mode::Off {
                count(&DROPPED.nested);
            }
            return real();
        }
        match mode() {
            Mode::Exact => {
                let Some(state) = state_of(block).as_mut() else {
                    (*block).countdown = 0;
                    count(&DROPPED.no_memory);
                    return real();
                };
                enter(block);
                let stack = stack(state, frame);
                // Needed right after the real one.
                hint(
                    state
                        .cells
                        .get(stack.unwrap_or(0) as usize)
                        .cast_const()
                        .cast(),
                );
                let address = real();
                if !address.is_null() {
                    let weight = Weight {
                        objects: 1,
                        bytes: size as u64,
                    };
                    if record(state, address, stack, size, weight) {
                        state.recent.allocated(address as usize);
                    }
                }
                leave(block, 0);
                address
            }
            Mode::Sampled => allocate_sampled(block, size, frame, real),
            Mode::Off => {
                (*block).countdown = 0;
                real()
            }
        }
    }
}

/// Whether this is the thread's first countdown of this recording: it ran out for no allocation's sake.
fn begins(block: *mut Block) -> bool {
    let recording = RECORDING.load(Ordering::Relaxed);
    // SAFETY: the block is this thread's own.
    unsafe { std::mem::replace(&mut (*block).recording, recording) != recording }
}

#[cold]
unsafe fn allocate_sampled(
    block: *mut Block,
    size: usize,
    frame: Frame,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    // SAFETY: as in `allocate`.
    unsafe {
        let begins = begins(block);
        let Some(state) = state_of(block).as_mut() else {
            (*block).countdown = period();
            count(&DROPPED.no_memory);
            return real();
        };
        if begins {
            // Every thread's first allocation comes here, for its countdown starts at zero.
            let interval = state.random.interval(period());
            if interval > size as u64 {
                (*block).countdown = interval - (size as u64 + 1);
                return real();
            }
        }
        enter(block);
        let stack = stack(state, frame);
        let address = real();
        if !address.is_null() {
            let weight = sampler::weight(size as u64, period());
            if record(state, address, stack, size, weight) {
                filter::add(address as usize);
            }
        }
        leave(block, state.random.interval(period()));
        address
    }
}

/// The number of the stack at `frame`.
#[inline(always)]
pub(crate) fn stack(state: &mut ThreadState, frame: Frame) -> Option<u32> {
    let captured = state.record.capture(frame);
    if captured == Captured::Same && state.last_generation == mappings::generation() {
        return state.last_stack;
    }
    changed_stack(state, frame, captured)
}

fn changed_stack(state: &mut ThreadState, frame: Frame, captured: Captured) -> Option<u32> {
    let generation = mappings::generation();
    let mixed =
        |hash: u64| (hash ^ u64::from(generation).wrapping_mul(0x94d0_49bb_1331_11eb)).max(2);
    let id = match captured {
        Captured::Unrecorded => {
            let kept = state.record.walk(frame);
            STACKS.find_or_insert(mixed(capture::hash(kept)), generation, kept.iter().copied())
        }
        Captured::Recorded(hash) => {
            let hash = mixed(hash);
            STACKS.find(hash).or_else(|| {
                STACKS.find_or_insert(
                    hash,
                    generation,
                    state.record.frames().iter().rev().copied(),
                )
            })
        }
        Captured::Same => {
            let hash = mixed(state.record.hash());
            STACKS.find_or_insert(
                hash,
                generation,
                state.record.frames().iter().rev().copied(),
            )
        }
    };
    (state.last_stack, state.last_generation) = (id, generation);
    id
}

/// Enters a new block in the books.
#[inline]
fn record(
    state: &mut ThreadState,
    address: *mut u8,
    stack: Option<u32>,
    size: usize,
    weight: Weight,
) -> bool {
    LIVE.prefetch(address as usize);
    let cell = stack.map_or(std::ptr::null_mut(), |stack| {
        state.cells.touch(stack as usize)
    });
    // SAFETY: cells are mapped for good and written by their thread only.
    let (Some(cell), Some(stack)) = (unsafe { cell.as_ref() }, stack) else {
        count(&DROPPED.no_memory);
        return false;
    };
    let block = LiveBlock {
        stack,
        size: size as u64,
    };
    let mut access = owner::open(state);
    let alarm = PROCESS.allocated(state, cell, weight, &mut access);
    let inserted = LIVE.insert(address as usize, block, access == Access::Alone);
    owner::close(state);
    if alarm {
        trigger::alarm();
    }
    if !matches!(inserted, Ok(None)) {
        not_as_expected(state, inserted, block);
    }
    let bytes = weight.bytes >> if period() == 1 { 0 } else { sampler::BYTE_BITS };
    state.unreported[0] = state.unreported[0].wrapping_add(bytes);
    if state.unreported[0] >= trigger::REPORT {
        trigger::report(&mut state.unreported);
    }
    inserted.is_ok()
}

/// A block that could not be remembered, or whose address was still taken.
#[cold]
fn not_as_expected(
    state: &mut ThreadState,
    inserted: Result<Option<LiveBlock>, Full>,
    block: LiveBlock,
) {
    match inserted {
        Ok(Some(old)) => {
            count(&DROPPED.unseen);
            settle(state, old);
        }
        Ok(None) => {}
        Err(Full) => {
            count(&DROPPED.no_memory);
            settle(state, block);
        }
    }
}

/// What a block of `size` bytes counts.
#[inline]
fn weight_of(size: u64) -> Weight {
    match period() {
        1 => Weight {
            objects: 1,
            bytes: size,
        },
        period => sampler::weight(size, period),
    }
}

/// Takes a block out of the books.
#[inline]
fn settle(state: &mut ThreadState, block: LiveBlock) {
    let access = owner::open(state);
    settle_open(state, block, access);
    owner::close(state);
    reported_free(state, block);
}

#[inline(always)]
fn settle_open(state: &ThreadState, block: LiveBlock, access: Access) {
    // SAFETY: as in `record`.
    if let Some(cell) = unsafe { state.cells.touch(block.stack as usize).as_ref() } {
        PROCESS.freed(state, cell, weight_of(block.size), access);
    }
}

#[inline(always)]
fn reported_free(state: &mut ThreadState, block: LiveBlock) {
    let bytes = weight_of(block.size).bytes >> if period() == 1 { 0 } else { sampler::BYTE_BITS };
    state.unreported[1] = state.unreported[1].wrapping_add(bytes);
    if state.unreported[1] >= trigger::REPORT {
        trigger::report(&mut state.unreported);
    }
}

/// In exact mode: whether a block that ends was temporary.
#[inline(always)]
fn note_end(state: &mut ThreadState, address: usize, block: LiveBlock) {
    if state.recent.freed(address)
        // SAFETY: as in `record`.
        && let Some(temporary) = unsafe { state.temporary.touch(block.stack as usize).as_ref() }
    {
        temporary.0.add(Weight {
            objects: 1,
            bytes: block.size,
        });
    }
}

/// Forgets a block without counting its end yet.
#[inline(always)]
fn take(state: &ThreadState, address: *mut u8) -> Option<LiveBlock> {
    let alone = owner::open(state) == Access::Alone;
    let block = LIVE.remove(address as usize, alone);
    owner::close(state);
    block
}

/// A free that the filter chose; before the real one, after which another thread may get the address.
#[inline]
pub fn release(address: *mut u8) {
    let block = tls::current();
    // SAFETY: as in `allocate`.
    unsafe {
        if (*block).busy != 0 || mode() == Mode::Off {
            return;
        }
        let countdown = (*block).countdown;
        let Some(state) = state_of(block).as_mut() else {
            count(&DROPPED.no_memory);
            return;
        };
        enter(block);
        // The real free reads the block's header: its miss and ours overlap.
        hint(address.wrapping_sub(16));
        let exact = mode() == Mode::Exact;
        let access = owner::open(state);
        let freed = LIVE.remove(address as usize, access == Access::Alone);
        if let Some(freed) = freed {
            settle_open(state, freed, access);
        }
        owner::close(state);
        match freed {
            Some(freed) => {
                if exact {
                    note_end(state, address as usize, freed);
                } else {
                    filter::remove(address as usize);
                }
                reported_free(state, freed);
            }
            None if exact => count(&DROPPED.unknown),
            None => {}
        }
        leave(block, countdown);
    }
}

/// A reallocation: the end of `old` and a new allocation, in place or not.
///
/// The old block leaves the table before `real`, which may give its address to another thread, and comes
/// back if `real` fails.
#[inline]
pub fn reallocate(
    old: *mut u8,
    size: usize,
    frame: Frame,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let chosen = charge(size);
    if !chosen && !filter::may_hold(old as usize) {
        return real();
    }
    let block = tls::current();
    // SAFETY: as in `allocate`.
    unsafe {
        if (*block).busy != 0 || mode() == Mode::Off {
            if mode() == Mode::Off {
                (*block).countdown = 0;
            }
            return real();
        }
        let exact = mode() == Mode::Exact;
        let begins = !exact && chosen && begins(block);
        let countdown = (*block).countdown;
        let Some(state) = state_of(block).as_mut() else {
            count(&DROPPED.no_memory);
            return real();
        };
        let mut chosen = chosen;
        let mut next = if exact { 0 } else { countdown };
        if chosen && !exact {
            next = state.random.interval(period());
            if begins && next > size as u64 {
                (chosen, next) = (false, next - (size as u64 + 1));
            }
        }
        enter(block);
        let freed = take(state, old);
        let stack = if chosen { stack(state, frame) } else { None };
        let address = real();
        match freed {
            Some(freed) if address.is_null() && size != 0 => {
                // The old block is untouched.
                let alone = owner::open(state) == Access::Alone;
                let _ = LIVE.insert(old as usize, freed, alone);
                owner::close(state);
            }
            Some(freed) if exact => {
                note_end(state, old as usize, freed);
                settle(state, freed);
            }
            Some(freed) => {
                filter::remove(old as usize);
                settle(state, freed);
            }
            None if exact && !address.is_null() => count(&DROPPED.unknown),
            None => {}
        }
        if chosen && !address.is_null() {
            let weight = weight_of(size as u64);
            if record(state, address, stack, size, weight) {
                if exact {
                    state.recent.allocated(address as usize);
                } else {
                    filter::add(address as usize);
                }
            }
        }
        leave(block, next);
        address
    }
}
