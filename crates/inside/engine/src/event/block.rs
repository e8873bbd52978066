//! Records allocations, frees and reallocations, in exact and in sampled mode.

use heapprof_abi::{RecordingEpoch, StackNumber};
use heapprof_platform::arch::prefetch;
use heapprof_platform::tls::{self, ThreadSlot};

use crate::drop_counters::count;
use crate::engine::Engine;
use crate::event::entry::CountdownState::{GoesOn, RanOut};
use crate::event::entry::{StateOwnership, ThreadEvent, charge};
use crate::event::moment;
use crate::event::outside_allocator::outside_allocator;
use crate::event::stack::{capture, find_stack_number, number_captured, prefetch_captured};
use crate::ledger::access::OpenLedger;
use crate::ledger::live::{BlockSpot, LiveBlock, TableFull};
use crate::mode::RecordingMode;
use crate::stack::call_site::CallSite;
use crate::tables::counters::{CountOutcome, EventWeight};
use crate::tables::log::{LogBlock, LogEventKind};
use crate::tables::sampler;
use crate::tables::spread::StackSpread;
use crate::thread::state::{ThreadOwnState, ThreadState};

/// Makes an allocation that the countdown chose, and records the block that `real` returns.
///
/// `frame` is the call site in the program.
#[inline]
pub(super) fn allocate(
    engine: &'static Engine,
    size: usize,
    frame: CallSite,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let slot = tls::current();
    let recorded = &engine.process.recorded;
    // SAFETY: the slot is this thread's own.
    if unsafe { (*slot).busy } != 0 {
        if recorded.is_running() {
            count(&engine.process.dropped.nested);
        }
        return real();
    }
    let epoch = recorded.epoch();
    match recorded.mode() {
        RecordingMode::Exact => {
            // SAFETY: the slot is this thread's own, and not busy.
            let event =
                unsafe { ThreadEvent::enter(engine, slot, StateOwnership::Own, GoesOn, epoch, 0) };
            let Some(mut event) = event else {
                return real();
            };
            let (state, own) = event.tables();
            // The real allocation runs while the stack's place in the tables is fetched.
            let captured = capture(engine, own, frame, size);
            prefetch_captured(engine, state, own, captured);
            let address = real();
            let spot = engine.ledger.live.find_spot(address as usize);
            // The stack gets its number even if there is no block: the record holds this stack now,
            // and the next one may be the same.
            let stack = number_captured(engine, own, frame, captured);
            if !address.is_null() {
                add_to_ledger::<true>(engine, state, own, spot, stack, size);
            }
            address
        }
        // SAFETY: the slot is this thread's own, and not busy.
        RecordingMode::Sampled => unsafe {
            allocate_sampled(engine, slot, size, frame, epoch, real)
        },
        RecordingMode::Off => {
            // SAFETY: the slot is this thread's own.
            unsafe { (*slot).countdown = 0 };
            real()
        }
    }
}

/// Records a block as [`allocate`] does, but the allocator has already returned the block. So the
/// block's slot in the table of blocks can be prefetched while the stack is captured.
#[inline]
pub(super) fn record_allocation(
    engine: &'static Engine,
    made: *mut u8,
    size: usize,
    frame: CallSite,
) {
    debug_assert!(!made.is_null());
    // The block's place is fetched while the stack is captured.
    let spot = engine.ledger.live.find_spot(made as usize);
    let slot = tls::current();
    let recorded = &engine.process.recorded;
    let epoch = recorded.epoch();
    // SAFETY: the slot is this thread's own.
    if unsafe { (*slot).busy } != 0 || recorded.mode() != RecordingMode::Exact {
        allocate(engine, size, frame, || made);
        return;
    }
    // SAFETY: the slot is this thread's own, and not busy.
    let event = unsafe { ThreadEvent::enter(engine, slot, StateOwnership::Own, GoesOn, epoch, 0) };
    let Some(mut event) = event else {
        return;
    };
    let (state, own) = event.tables();
    let stack = find_stack_number(engine, own, frame, size);
    add_to_ledger::<true>(engine, state, own, spot, stack, size);
}

/// Makes an allocation in sampled mode. If the allocation is sampled, records the block that `real`
/// returns.
///
/// # Safety
/// The slot is this thread's own, and not busy.
#[cold]
unsafe fn allocate_sampled(
    engine: &'static Engine,
    slot: *mut ThreadSlot,
    size: usize,
    frame: CallSite,
    epoch: RecordingEpoch,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let period = || engine.process.recorded.period();
    // SAFETY: the caller's contract.
    let event =
        unsafe { ThreadEvent::enter(engine, slot, StateOwnership::Own, RanOut, epoch, period()) };
    let Some(mut event) = event else {
        return real();
    };
    let begins = event.ends_first_countdown();
    let (state, own) = event.tables();
    if begins {
        // Every thread's first allocation comes here, because its countdown starts at zero.
        let interval = own.random.interval(period());
        if interval > size as u64 {
            event.finish(interval - (size as u64 + 1));
            return real();
        }
    }
    let stack = find_stack_number(engine, own, frame, size);
    let address = real();
    if !address.is_null() {
        let spot = engine.ledger.live.find_spot(address as usize);
        add_to_ledger::<false>(engine, state, own, spot, stack, size);
    }
    let next = own.random.interval(period());
    event.finish(next);
    address
}

/// Enters a new block in the ledger (the counters and the table of blocks), unless another
/// recording has begun since the event.
#[inline(always)]
fn add_to_ledger<const EXACT: bool>(
    engine: &'static Engine,
    state: &ThreadState,
    own: &mut ThreadOwnState,
    spot: BlockSpot<'static>,
    stack: Option<StackNumber>,
    size: usize,
) {
    let address = spot.address();
    let (process, ledger) = (&engine.process, &engine.ledger);
    let counters = stack.and_then(|stack| state.counters(stack, &process.pages));
    let (Some(counters), Some(stack)) = (counters, stack) else {
        count(&process.dropped.no_memory);
        return;
    };
    let size = size as u64;
    let (block, weight) = (
        LiveBlock { stack, size },
        block_weight::<EXACT>(engine, size),
    );
    let Some(mut open) = ledger.access.open(process, state) else {
        return;
    };
    let counted = open.count_allocation(counters, weight);
    if !counted.is_counted() {
        return;
    }
    state.sizes.count_allocation(size, weight);
    if !EXACT {
        let period = process.recorded.period();
        note_spread(engine, state, stack, |spread| {
            spread.note_allocation(size, period);
        });
    }
    let inserted = ledger.live.insert::<EXACT>(spot, block, &mut open);
    // A block that was known at this address is in the filter already.
    if !EXACT && inserted == Ok(None) {
        ledger.filter.add(address);
    }
    drop(open);
    if counted == CountOutcome::Alarm {
        engine
            .dumping
            .due
            .handle_alarm(process, &ledger.access.heap);
    }
    if !matches!(inserted, Ok(None)) {
        handle_insert_problem::<EXACT>(engine, state, own, inserted, block);
    }
    if EXACT && inserted.is_ok() {
        own.recent.note(address);
        log(engine, LogEventKind::Allocated, address, block);
    }
    report::<EXACT>(engine, own, ALLOCATED_INDEX, weight);
}

/// Adds an event to the log, if there is a log. This is called before a free and after an
/// allocation, when no other thread can get the address.
#[inline(always)]
fn log(engine: &'static Engine, what: LogEventKind, address: usize, block: LiveBlock) {
    if !engine.log.ring_place().is_null() {
        add_to_log(engine, what, address, block);
    }
}

#[cold]
#[inline(never)]
fn add_to_log(engine: &'static Engine, what: LogEventKind, address: usize, block: LiveBlock) {
    let LiveBlock { stack, size } = block;
    let block = LogBlock {
        address,
        size,
        stack,
    };
    let thread = engine.threads.names.current(&engine.process);
    engine.log.add(what, block, thread);
}

const ALLOCATED_INDEX: usize = 0;
const FREED_INDEX: usize = 1;

/// Adds an event's bytes to the thread's unreported bytes, which are reported once they reach the
/// limit.
#[inline(always)]
fn report<const EXACT: bool>(
    engine: &Engine,
    own: &mut ThreadOwnState,
    what: usize,
    weight: EventWeight,
) {
    let due = &engine.dumping.due;
    let finer = if EXACT { 0 } else { sampler::BYTE_BITS };
    let sum = own.unreported[what].wrapping_add(weight.bytes >> finer);
    own.unreported[what] = sum;
    if sum >= due.max_unreported() {
        due.report(&mut own.unreported);
        moment::take_due_moment(engine);
    }
}

/// Handles a failed insertion into the table of blocks: there was no memory, or the table still had
/// an earlier block with this address.
#[cold]
fn handle_insert_problem<const EXACT: bool>(
    engine: &'static Engine,
    state: &ThreadState,
    own: &mut ThreadOwnState,
    inserted: Result<Option<LiveBlock>, TableFull>,
    block: LiveBlock,
) {
    let process = &engine.process;
    if state.epoch.get() != process.recorded.epoch() {
        return;
    }
    match inserted {
        Ok(Some(old)) => {
            process.dropped.count_unseen(old.size);
            count_end::<EXACT>(engine, state, own, None, old);
        }
        Ok(None) => {}
        Err(TableFull) => {
            count(&process.dropped.no_memory);
            count_end::<EXACT>(engine, state, own, None, block);
        }
    }
}

/// Returns the weight of a block of `size` bytes.
#[inline]
fn block_weight<const EXACT: bool>(engine: &Engine, size: u64) -> EventWeight {
    if EXACT {
        EventWeight {
            objects: 1,
            bytes: size,
        }
    } else {
        sampler::sample_weight(size, engine.process.recorded.period())
    }
}

/// Counts the end of a block that was taken out of the table, unless another recording has begun
/// since the event.
#[inline]
fn count_end<const EXACT: bool>(
    engine: &'static Engine,
    state: &ThreadState,
    own: &mut ThreadOwnState,
    address: Option<usize>,
    block: LiveBlock,
) {
    let weight = block_weight::<EXACT>(engine, block.size);
    let Some(open) = engine.ledger.access.open(&engine.process, state) else {
        return;
    };
    count_end_open::<EXACT>(engine, state, block, weight, &open);
    if let Some(address) = address {
        note_end::<EXACT>(engine, state, own, address, block);
    }
    drop(open);
    report::<EXACT>(engine, own, FREED_INDEX, weight);
}

#[inline(always)]
fn count_end_open<const EXACT: bool>(
    engine: &Engine,
    state: &ThreadState,
    block: LiveBlock,
    weight: EventWeight,
    open: &OpenLedger<'_>,
) {
    match state.counters(block.stack, &engine.process.pages) {
        Some(counters) => {
            open.count_free(counters, weight);
            if !open.is_overtaken() {
                state.sizes.count_free(block.size, weight);
            }
        }
        None => count(&engine.process.dropped.no_memory),
    }
    if !EXACT && !open.is_overtaken() {
        let period = engine.process.recorded.period();
        note_spread(engine, state, block.stack, |spread| {
            spread.note_free(block.size, period);
        });
    }
}

/// Adds a sample to the spread of its stack. The spread shows how certain the stack's sums are.
/// Without memory for the spread, the sums are still right, but are reported as more certain than
/// they are.
#[inline(always)]
fn note_spread(
    engine: &Engine,
    state: &ThreadState,
    stack: StackNumber,
    note: impl FnOnce(&StackSpread),
) {
    if let Some(spread) = state.spread(stack, &engine.process.pages) {
        note(spread);
    }
}

/// Records a block's end. In exact mode, counts the block if it was temporary. In sampled mode,
/// removes the block from the filter.
#[inline(always)]
fn note_end<const EXACT: bool>(
    engine: &Engine,
    state: &ThreadState,
    own: &mut ThreadOwnState,
    address: usize,
    block: LiveBlock,
) {
    if !EXACT {
        engine.ledger.filter.remove(address);
        return;
    }
    if own.recent.note_free(address)
        && let Some(temporary) = state.temporary(block.stack, &engine.process.pages)
    {
        temporary.0.add(block_weight::<EXACT>(engine, block.size));
    }
}

/// Takes a block out of the table without counting its end yet.
#[inline(always)]
fn take_block(engine: &Engine, state: &ThreadState, address: *mut u8) -> Option<LiveBlock> {
    let mut open = engine.ledger.access.open(&engine.process, state)?;
    let spot = engine.ledger.live.find_spot(address as usize);
    engine.ledger.live.remove(spot, &mut open)
}

/// The allocator with which a block was freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FreeingAllocator {
    /// The block was freed by malloc's free. Frees of unknown blocks are counted.
    Malloc,
    /// The block was freed by another allocator. It may come from malloc, or from a source that the
    /// engine does not see.
    Other,
}

/// Records a free that the filter chose, and returns whether the block was known. This is called
/// before the real free, because afterwards another thread may get the address.
#[inline]
pub(super) fn release(engine: &'static Engine, address: *mut u8, by: FreeingAllocator) -> bool {
    let spot = engine.ledger.live.find_spot(address as usize);
    let watched = &engine.scripts.watched;
    watched.note_free(address as usize, engine.ledger.filter);
    let slot = tls::current();
    let recorded = &engine.process.recorded;
    let epoch = recorded.epoch();
    let mode = recorded.mode();
    if mode == RecordingMode::Off {
        return false;
    }
    // SAFETY: the slot is this thread's own.
    let (busy, countdown) = unsafe { ((*slot).busy, (*slot).countdown) };
    if busy != 0 {
        return release_inside(engine, slot, address, by);
    }
    let tables = StateOwnership::Borrowed;
    // SAFETY: the slot is this thread's own, and not busy.
    let event = unsafe { ThreadEvent::enter(engine, slot, tables, GoesOn, epoch, countdown) };
    let Some(mut event) = event else {
        return false;
    };
    let (state, own) = event.tables();
    // The real free reads the block's header, so its cache miss and ours overlap.
    prefetch(address.wrapping_sub(16));
    let was_known = if mode == RecordingMode::Exact {
        forget::<true>(engine, state, own, spot, by)
    } else {
        forget::<false>(engine, state, own, spot, by)
    };
    event.finish(countdown);
    was_known
}

/// Records a free inside an allocator, and counts one inside the engine.
#[cold]
fn release_inside(
    engine: &'static Engine,
    slot: *mut ThreadSlot,
    address: *mut u8,
    by: FreeingAllocator,
) -> bool {
    // SAFETY: the slot is this thread's own.
    if unsafe { (*slot).busy } != tls::INSIDE_ALLOCATOR {
        if by == FreeingAllocator::Malloc {
            count(&engine.process.dropped.nested);
        }
        return false;
    }
    // SAFETY: as above. The engine is not at work, and what an allocator frees may be its own.
    unsafe { outside_allocator(slot, || release(engine, address, FreeingAllocator::Other)) }
}

/// Removes a freed block from the ledger, unless another recording has begun since the event.
/// Returns whether the block was there.
#[inline(always)]
fn forget<const EXACT: bool>(
    engine: &'static Engine,
    state: &ThreadState,
    own: &mut ThreadOwnState,
    spot: BlockSpot<'static>,
    by: FreeingAllocator,
) -> bool {
    let Some(mut open) = engine.ledger.access.open(&engine.process, state) else {
        return false;
    };
    let freed = engine.ledger.live.remove(spot, &mut open);
    if let Some(freed) = freed {
        let weight = block_weight::<EXACT>(engine, freed.size);
        count_end_open::<EXACT>(engine, state, freed, weight, &open);
        note_end::<EXACT>(engine, state, own, spot.address(), freed);
        drop(open);
        if EXACT {
            log(engine, LogEventKind::Freed, spot.address(), freed);
        }
        report::<EXACT>(engine, own, FREED_INDEX, weight);
        true
    } else {
        let is_overtaken = open.is_overtaken();
        drop(open);
        if EXACT && !is_overtaken && by == FreeingAllocator::Malloc {
            count(&engine.process.dropped.unknown);
        }
        false
    }
}

/// Makes a reallocation. It counts as a free of `old` and a new allocation, even if the block stays
/// at its address.
///
/// The old block is removed from the table before the call of `real`, because `real` may give its
/// address to another thread. If `real` fails, the old block is put back.
#[inline]
pub(super) fn reallocate(
    engine: &'static Engine,
    old: *mut u8,
    size: usize,
    frame: CallSite,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let chosen = charge(size);
    if !chosen && !engine.ledger.filter.may_hold(old as usize) {
        return real();
    }
    let epoch = engine.process.recorded.epoch();
    let chosen = (chosen, epoch);
    match engine.process.recorded.mode() {
        RecordingMode::Exact => reallocate_chosen::<true>(engine, old, size, frame, chosen, real),
        RecordingMode::Sampled => {
            reallocate_chosen::<false>(engine, old, size, frame, chosen, real)
        }
        RecordingMode::Off => {
            tls::rewind();
            real()
        }
    }
}

fn reallocate_chosen<const EXACT: bool>(
    engine: &'static Engine,
    old: *mut u8,
    size: usize,
    frame: CallSite,
    (mut chosen, epoch): (bool, RecordingEpoch),
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let slot = tls::current();
    let process = &engine.process;
    let period = || process.recorded.period();
    // SAFETY: the slot is this thread's own.
    let (busy, countdown) = unsafe { ((*slot).busy, (*slot).countdown) };
    if busy != 0 {
        count(&process.dropped.nested);
        return real();
    }
    let otherwise = match (chosen, EXACT) {
        (false, _) => countdown,
        (true, true) => 0,
        (true, false) => period(),
    };
    let ends = if chosen && !EXACT { RanOut } else { GoesOn };
    let tables = StateOwnership::Own;
    // SAFETY: the slot is this thread's own, and not busy.
    let event = unsafe { ThreadEvent::enter(engine, slot, tables, ends, epoch, otherwise) };
    let Some(mut event) = event else {
        return real();
    };
    let begins = event.ends_first_countdown();
    let (state, own) = event.tables();
    let mut next = if EXACT { 0 } else { countdown };
    if chosen && !EXACT {
        next = own.random.interval(period());
        if begins && next > size as u64 {
            (chosen, next) = (false, next - (size as u64 + 1));
        }
    }
    let freed = take_block(engine, state, old);
    if EXACT && let Some(freed) = freed {
        log(engine, LogEventKind::Freed, old as usize, freed);
    }
    let stack = if chosen {
        find_stack_number(engine, own, frame, size)
    } else {
        None
    };
    let address = real();
    if epoch != process.recorded.epoch() {
        // Another recording began meanwhile, which knows nothing of the old block.
        event.finish(0);
        return address;
    }
    match freed {
        Some(freed) if address.is_null() && size != 0 => {
            // The old block is untouched.
            if let Some(mut open) = engine.ledger.access.open(process, state) {
                let spot = engine.ledger.live.find_spot(old as usize);
                let inserted = engine.ledger.live.insert::<EXACT>(spot, freed, &mut open);
                drop(open);
                if EXACT && inserted.is_ok() {
                    log(engine, LogEventKind::Allocated, old as usize, freed);
                }
                if inserted.is_err() {
                    handle_insert_problem::<EXACT>(engine, state, own, inserted, freed);
                }
            }
        }
        Some(freed) => {
            count_end::<EXACT>(engine, state, own, Some(old as usize), freed);
        }
        None if EXACT && !address.is_null() => count(&process.dropped.unknown),
        None => {}
    }
    if chosen && !address.is_null() {
        let spot = engine.ledger.live.find_spot(address as usize);
        add_to_ledger::<EXACT>(engine, state, own, spot, stack, size);
    }
    event.finish(next);
    address
}
