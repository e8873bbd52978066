//! What happens at an allocation, at a free and at a reallocation, in exact and in sampled mode.

use crate::books::access;
use crate::books::engine::{LIVE, STACKS};
use crate::books::live::{Block, Full};
use crate::code::mappings;
use crate::mode::{self, Mode, period};
use crate::platform::sys::hint;
use crate::platform::tls::{self, ThreadSlot};
use crate::stack::call_site::CallSite;
use crate::stack::capture::{self, Captured};
use crate::tables::counters::{Access, Counted, PROCESS, Weight};
use crate::tables::dropped::{DROPPED, count};
use crate::tables::spread::Spread;
use crate::tables::stacks::Stack;
use crate::tables::{filter, sampler};
use crate::thread::entry::Countdown::{GoesOn, RanOut};
use crate::thread::entry::{Event, Tables, charge};
use crate::thread::state::{Own, ThreadState};
use crate::trigger;

/// Makes an allocation that the countdown chose, and records what `real` gives.
///
/// `frame` is where the program called.
#[inline]
pub fn allocate(size: usize, frame: CallSite, real: impl FnOnce() -> *mut u8) -> *mut u8 {
    let slot = tls::current();
    // SAFETY: the slot, and through `busy` its state, are this thread's own.
    unsafe {
        if (*slot).busy != 0 {
            if mode::now() != Mode::Off {
                count(&DROPPED.nested);
            }
            return real();
        }
        let recording = mode::recording();
        match mode::now() {
            Mode::Exact => {
                let Some(mut event) = Event::enter(slot, Tables::Kept, GoesOn, recording, 0) else {
                    return real();
                };
                let (state, own) = event.tables();
                // The real allocation runs while the stack's place in the tables is fetched.
                let captured = own.remembered.capture(frame);
                foresee(state, own, captured);
                let address = real();
                LIVE.prefetch(address as usize);
                // This is done even if there is no block: the record holds this stack now, and the
                // next one may be the same.
                let stack = number(own, frame, captured);
                if !address.is_null() {
                    record::<true>(state, own, address, stack, size);
                }
                address
            }
            Mode::Sampled => allocate_sampled(slot, size, frame, recording, real),
            Mode::Off => {
                (*slot).countdown = 0;
                real()
            }
        }
    }
}

/// # Safety
/// The slot is this thread's own, and not busy.
#[cold]
unsafe fn allocate_sampled(
    slot: *mut ThreadSlot,
    size: usize,
    frame: CallSite,
    recording: u64,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    // SAFETY: the caller's contract.
    let event = unsafe { Event::enter(slot, Tables::Kept, RanOut, recording, period()) };
    let Some(mut event) = event else {
        return real();
    };
    let begins = event.begins();
    let (state, own) = event.tables();
    if begins {
        // Every thread's first allocation comes here, because its countdown starts at zero.
        let interval = own.random.interval(period());
        if interval > size as u64 {
            event.finish(interval - (size as u64 + 1));
            return real();
        }
    }
    let stack = stack(own, frame);
    let address = real();
    if !address.is_null() {
        record::<false>(state, own, address, stack, size);
    }
    let next = own.random.interval(period());
    event.finish(next);
    address
}

/// The number of the stack at `frame`.
#[inline(always)]
pub(crate) fn stack(own: &mut Own, frame: CallSite) -> Option<u32> {
    let captured = own.remembered.capture(frame);
    number(own, frame, captured)
}

/// The number of the stack that was captured last, at `frame`.
#[inline(always)]
fn number(own: &mut Own, frame: CallSite, captured: Captured) -> Option<u32> {
    match captured {
        Captured::Same
            if own.last_generation == mappings::generation() && own.last_stack.is_some() =>
        {
            own.last_stack
        }
        Captured::Recent(stack) => Some(stack),
        _ => changed_stack(own, frame, captured),
    }
}

/// Brings into the cache what a captured stack will need.
#[inline(always)]
fn foresee(state: &ThreadState, own: &Own, captured: Captured) {
    let stack = match captured {
        Captured::Recorded => {
            STACKS.prefetch(mixed(own.remembered.hash(), mappings::generation()));
            return;
        }
        Captured::Recent(stack) => Some(stack),
        _ => own.last_stack,
    };
    if let Some(stack) = stack {
        hint(state.counters.get(stack as usize).cast_const().cast());
    }
}

/// The key of a stack: its hash, mixed with the generation of mappings. It is no key that the table
/// has a use of its own for.
#[inline(always)]
fn mixed(hash: u64, generation: u32) -> u64 {
    (hash ^ u64::from(generation).wrapping_mul(0x94d0_49bb_1331_11eb)).max(2)
}

/// The number of the stack with this hash, which is `new` if nobody saw it before.
#[inline(always)]
fn find_or_insert<'a>(hash: u64, generation: u32, new: impl FnOnce() -> Stack<'a>) -> Option<u32> {
    STACKS
        .find(hash)
        .or_else(|| STACKS.find_or_insert(hash, generation, new()))
}

fn changed_stack(own: &mut Own, frame: CallSite, captured: Captured) -> Option<u32> {
    let generation = mappings::generation();
    let record = &mut own.remembered;
    let id = if captured == Captured::Unrecorded {
        let kept = record.walk(frame);
        let hash = mixed(capture::hash(kept), generation);
        let id = find_or_insert(hash, generation, || Stack::new(kept));
        // What the record holds, if anything, is not what got this number.
        record.numbered(None, generation);
        id
    } else if record.is_deep() {
        let hash = mixed(record.hash_of_ends(), generation);
        let id = find_or_insert(hash, generation, || Stack::new(record.ends()));
        record.numbered(None, generation);
        id
    } else {
        let hash = mixed(record.hash(), generation);
        let id = find_or_insert(hash, generation, || {
            let base = own.last_stack.map(|last| (last, record.shared()));
            Stack::on(base, record.frames())
        });
        record.numbered(id, generation);
        id
    };
    (own.last_stack, own.last_generation) = (id, generation);
    id
}

/// Enters a new block in the books (the counters and the table of blocks), if they are still those
/// of the event's recording.
#[inline(always)]
fn record<const EXACT: bool>(
    state: &ThreadState,
    own: &mut Own,
    address: *mut u8,
    stack: Option<u32>,
    size: usize,
) {
    LIVE.prefetch(address as usize);
    let cell = stack.map_or(std::ptr::null_mut(), |stack| {
        state.counters.touch(stack as usize)
    });
    // SAFETY: counters are mapped for good and written by their thread only.
    let (Some(cell), Some(stack)) = (unsafe { cell.as_ref() }, stack) else {
        count(&DROPPED.no_memory);
        return;
    };
    let size = size as u64;
    let (block, weight) = (Block { stack, size }, weight_of::<EXACT>(size));
    let Some(mut access) = access::open(state) else {
        return;
    };
    let counted = access::allocated(state, cell, weight, &mut access);
    if !counted.is_counted() {
        access::close(state);
        return;
    }
    if !EXACT {
        note_spread(state, stack, |spread| spread.allocated(size));
    }
    let inserted = LIVE.insert(address as usize, block, state, &mut access);
    // A block that was known at this address is in the filter already.
    if !EXACT && inserted == Ok(None) {
        filter::add(address as usize);
    }
    access::close(state);
    if counted == Counted::Alarm {
        trigger::alarm();
    }
    if !matches!(inserted, Ok(None)) {
        not_as_expected::<EXACT>(state, own, inserted, block);
    }
    if EXACT && inserted.is_ok() {
        own.recent.note(address as usize);
    }
    report::<EXACT>(own, ALLOCATED, weight);
}

const ALLOCATED: usize = 0;
const FREED: usize = 1;

/// Adds to what the thread has not reported yet.
#[inline(always)]
fn report<const EXACT: bool>(own: &mut Own, what: usize, weight: Weight) {
    let finer = if EXACT { 0 } else { sampler::BYTE_BITS };
    let sum = own.unreported[what].wrapping_add(weight.bytes >> finer);
    own.unreported[what] = sum;
    if sum >= trigger::most_unreported() {
        trigger::report(&mut own.unreported);
    }
}

/// A block that could not be remembered, or whose address was still taken.
#[cold]
fn not_as_expected<const EXACT: bool>(
    state: &ThreadState,
    own: &mut Own,
    inserted: Result<Option<Block>, Full>,
    block: Block,
) {
    if state.recording.get() != mode::recording() {
        return;
    }
    match inserted {
        Ok(Some(old)) => {
            count(&DROPPED.unseen);
            count_end::<EXACT>(state, own, None, old);
        }
        Ok(None) => {}
        Err(Full) => {
            count(&DROPPED.no_memory);
            count_end::<EXACT>(state, own, None, block);
        }
    }
}

/// What a block of `size` bytes counts.
#[inline]
fn weight_of<const EXACT: bool>(size: u64) -> Weight {
    if EXACT {
        Weight {
            objects: 1,
            bytes: size,
        }
    } else {
        sampler::weight(size, period())
    }
}

/// Counts the end of a block that was taken out of the table, in the event's recording only.
#[inline]
fn count_end<const EXACT: bool>(
    state: &ThreadState,
    own: &mut Own,
    address: Option<usize>,
    block: Block,
) {
    let weight = weight_of::<EXACT>(block.size);
    let Some(access) = access::open(state) else {
        return;
    };
    count_end_open::<EXACT>(state, block, weight, access);
    if let Some(address) = address {
        note_end::<EXACT>(state, own, address, block);
    }
    access::close(state);
    report::<EXACT>(own, FREED, weight);
}

#[inline(always)]
fn count_end_open<const EXACT: bool>(
    state: &ThreadState,
    block: Block,
    weight: Weight,
    access: Access,
) {
    // SAFETY: as in `record`.
    match unsafe { state.counters.touch(block.stack as usize).as_ref() } {
        Some(cell) => PROCESS.freed(&state.budget, cell, weight, access),
        None => count(&DROPPED.no_memory),
    }
    if !EXACT && access != Access::Overtaken {
        note_spread(state, block.stack, |spread| spread.freed(block.size));
    }
}

/// Notes what a sample says of how sure the sums of its stack are. Without memory for that the sums
/// are as right, but said to be surer than they are.
#[inline(always)]
fn note_spread(state: &ThreadState, stack: u32, note: impl FnOnce(&Spread)) {
    // SAFETY: as in `record`.
    if let Some(spread) = unsafe { state.spread.touch(stack as usize).as_ref() } {
        note(spread);
    }
}

/// Notes a block's end: in exact mode whether it was temporary, in sampled mode that the filter no
/// longer holds it.
#[inline(always)]
fn note_end<const EXACT: bool>(state: &ThreadState, own: &mut Own, address: usize, block: Block) {
    if !EXACT {
        filter::remove(address);
        return;
    }
    if own.recent.freed(address)
        // SAFETY: as in `record`.
        && let Some(temporary) = unsafe { state.temporary.touch(block.stack as usize).as_ref() }
    {
        temporary.0.add(weight_of::<EXACT>(block.size));
    }
}

/// Takes a block out of the table without counting its end yet.
#[inline(always)]
fn take(state: &ThreadState, address: *mut u8) -> Option<Block> {
    let mut access = access::open(state)?;
    let block = LIVE.remove(address as usize, state, &mut access);
    access::close(state);
    block
}

/// Records a free that the filter chose. It is called before the real free, after which another
/// thread may get the address.
#[inline]
pub fn release(address: *mut u8) {
    let slot = tls::current();
    // SAFETY: as in `allocate`.
    unsafe {
        let recording = mode::recording();
        let mode = mode::now();
        if mode == Mode::Off {
            return;
        }
        if (*slot).busy != 0 {
            count(&DROPPED.nested);
            return;
        }
        let countdown = (*slot).countdown;
        let event = Event::enter(slot, Tables::Borrowed, GoesOn, recording, countdown);
        let Some(mut event) = event else {
            return;
        };
        let (state, own) = event.tables();
        // The real free reads the block's header, so its cache miss and ours overlap.
        hint(address.wrapping_sub(16));
        if mode == Mode::Exact {
            forget::<true>(state, own, address);
        } else {
            forget::<false>(state, own, address);
        }
        event.finish(countdown);
    }
}

/// Takes a block that ends out of the books, if they are still those of the event's recording.
#[inline(always)]
fn forget<const EXACT: bool>(state: &ThreadState, own: &mut Own, address: *mut u8) {
    let Some(mut access) = access::open(state) else {
        return;
    };
    let freed = LIVE.remove(address as usize, state, &mut access);
    if let Some(freed) = freed {
        let weight = weight_of::<EXACT>(freed.size);
        count_end_open::<EXACT>(state, freed, weight, access);
        note_end::<EXACT>(state, own, address as usize, freed);
        access::close(state);
        report::<EXACT>(own, FREED, weight);
    } else {
        access::close(state);
        if EXACT && access != Access::Overtaken {
            count(&DROPPED.unknown);
        }
    }
}

/// Makes a reallocation, which counts as the end of `old` and a new allocation, in place or not.
///
/// The old block leaves the table before `real`, which may give its address to another thread. It
/// comes back if `real` fails.
#[inline]
pub fn reallocate(
    old: *mut u8,
    size: usize,
    frame: CallSite,
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let chosen = charge(size);
    if !chosen && !filter::may_hold(old as usize) {
        return real();
    }
    let recording = mode::recording();
    match mode::now() {
        Mode::Exact => reallocate_chosen::<true>(old, size, frame, (chosen, recording), real),
        Mode::Sampled => reallocate_chosen::<false>(old, size, frame, (chosen, recording), real),
        Mode::Off => {
            tls::rewind();
            real()
        }
    }
}

fn reallocate_chosen<const EXACT: bool>(
    old: *mut u8,
    size: usize,
    frame: CallSite,
    (mut chosen, recording): (bool, u64),
    real: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let slot = tls::current();
    // SAFETY: as in `allocate`.
    unsafe {
        if (*slot).busy != 0 {
            count(&DROPPED.nested);
            return real();
        }
        let countdown = (*slot).countdown;
        let otherwise = match (chosen, EXACT) {
            (false, _) => countdown,
            (true, true) => 0,
            (true, false) => period(),
        };
        let ends = if chosen && !EXACT { RanOut } else { GoesOn };
        let event = Event::enter(slot, Tables::Kept, ends, recording, otherwise);
        let Some(mut event) = event else {
            return real();
        };
        let begins = event.begins();
        let (state, own) = event.tables();
        let mut next = if EXACT { 0 } else { countdown };
        if chosen && !EXACT {
            next = own.random.interval(period());
            if begins && next > size as u64 {
                (chosen, next) = (false, next - (size as u64 + 1));
            }
        }
        let freed = take(state, old);
        let stack = if chosen { stack(own, frame) } else { None };
        let address = real();
        if recording != mode::recording() {
            // Another recording began meanwhile, which knows nothing of the old block.
            event.finish(0);
            return address;
        }
        match freed {
            Some(freed) if address.is_null() && size != 0 => {
                // The old block is untouched.
                if let Some(mut access) = access::open(state) {
                    let inserted = LIVE.insert(old as usize, freed, state, &mut access);
                    access::close(state);
                    if inserted.is_err() {
                        not_as_expected::<EXACT>(state, own, inserted, freed);
                    }
                }
            }
            Some(freed) => {
                count_end::<EXACT>(state, own, Some(old as usize), freed);
            }
            None if EXACT && !address.is_null() => count(&DROPPED.unknown),
            None => {}
        }
        if chosen && !address.is_null() {
            record::<EXACT>(state, own, address, stack, size);
        }
        event.finish(next);
        address
    }
}
