//! How a thread enters and leaves the engine.

use std::sync::atomic::{Ordering, compiler_fence};

use heapprof_abi::RecordingEpoch;
use heapprof_platform::sys;
use heapprof_platform::table_file::TableMemory;
use heapprof_platform::tls::{self, QUIET_COUNTDOWN, ThreadSlot};

use crate::drop_counters::count;
use crate::engine::Engine;
use crate::mode::RecordingMode;
use crate::thread::state::{self, ThreadOwnState, ThreadState};

/// Takes the reentrancy guard. This thread then counts as inside the engine until
/// [`release_reentrancy_guard`].
pub(crate) fn hold_reentrancy_guard() {
    // SAFETY: the slot is this thread's own.
    unsafe {
        let slot = tls::current();
        // No allocator forks, so a call of it was left.
        (*slot).held = match (*slot).busy {
            tls::INSIDE_ALLOCATOR => (*slot).call_countdown,
            _ => (*slot).countdown,
        };
        (*slot).forking = true;
        enter(slot);
    }
}

/// Gives the random numbers a new seed in a forked child. Otherwise the child would draw the same
/// numbers as its parent and its siblings, and the errors of their profiles would add up. This is
/// called between [`hold_reentrancy_guard`] and [`release_reentrancy_guard`].
pub(crate) fn reseed_random(engine: &'static Engine) {
    // SAFETY: the slot is this thread's own, and in no event.
    unsafe {
        let slot = tls::current();
        let is_ours = (*slot).engine == state::engine_identity(&engine.process);
        if let Some(state) = state::state_in_slot(slot).as_ref().filter(|_| is_ours) {
            let random = &mut state.own().random;
            random.seed((sys::process_id() as u64) << 32 | sys::thread_id() as u64);
            if engine.process.recorded.mode() == RecordingMode::Sampled {
                // A new interval is as good as what was left of the last one: what is left does not
                // depend on how much has passed.
                (*slot).held = random.interval(engine.process.recorded.period());
            }
        }
    }
}

/// Whether this thread is between [`hold_reentrancy_guard`] and [`release_reentrancy_guard`].
pub(crate) fn has_reentrancy_guard() -> bool {
    // SAFETY: the slot is this thread's own.
    unsafe { (*tls::current()).forking }
}

/// Releases the reentrancy guard that [`hold_reentrancy_guard`] took.
pub(crate) fn release_reentrancy_guard(engine: &Engine) {
    // SAFETY: the slot is this thread's own.
    unsafe {
        let slot = tls::current();
        (*slot).countdown = (*slot).held;
        (*slot).forking = false;
        (*slot).busy = 0;
    }
    if engine.dumping.due.is_pending() {
        engine.dumping.due.run();
    }
}

/// Subtracts `size` plus one from the countdown. Returns whether the countdown ran out. If it did,
/// the caller must call [`EngineEvents::allocate`](crate::EngineEvents::allocate).
#[inline(always)]
pub(crate) fn charge(size: usize) -> bool {
    let slot = tls::current();
    // SAFETY: the slot is this thread's own.
    unsafe {
        let (left, ran_out) = (*slot)
            .countdown
            .overflowing_sub((size as u64).saturating_add(1));
        (*slot).countdown = left;
        ran_out
    }
}

/// Whether an event needs tables that belong to its thread, or may borrow tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateOwnership {
    /// The event uses tables that belong to the thread until the thread ends.
    Own,
    /// The event uses the thread's own tables, if it has any, or borrows tables. This is for a
    /// free, which may be the thread's only event, and may come so late that the thread's end is
    /// not announced any more.
    Borrowed,
}

/// Returns this thread's tables; `None` if there is no memory for them. A thread that has served
/// another engine serves this engine from now on.
///
/// # Safety
/// The slot is this thread's own, and busy.
#[inline(always)]
pub(crate) unsafe fn acquire_state(
    engine: &'static Engine,
    slot: *mut ThreadSlot,
    tables: StateOwnership,
) -> Option<&'static ThreadState> {
    if engine.process.shares_tables() && !separate_late(engine) {
        return None;
    }
    // SAFETY: the caller's contract. States are never freed while their thread lives, and a slot
    // that names an engine has a state of it.
    unsafe {
        if (*slot).engine == state::engine_identity(&engine.process) {
            return Some(&*state::state_in_slot(slot));
        }
        first_event(engine, slot, tables);
        state::state_in_slot(slot).as_ref()
    }
}

/// Separates this process's tables from those of its parent, after a fork that no handler
/// announced. Returns false if there is no memory for this process's own tables.
#[cold]
pub(crate) fn separate_late(engine: &Engine) -> bool {
    engine.process.abandon();
    // SAFETY: a copy of a process has one thread, which is here, and has no state from here on.
    unsafe { separate_tables(engine, TableMemory::Private) }
}

/// Separates this process from its parent, whose tables are in a file. This process gets a copy of
/// the lasting tables, in `memory` or in private memory, and no states of threads. Returns false if
/// there is not enough memory. Then no table may be used any more.
///
/// # Safety
/// This is a copy of the process, and has one thread, which is in no event.
pub(crate) unsafe fn separate_tables(engine: &Engine, memory: TableMemory<'_>) -> bool {
    let process = &engine.process;
    engine.log.forget();
    if !process.pages.table_file.is_shared() {
        process.mark();
        return true;
    }
    if process.is_sandboxed() {
        return false;
    }
    let kept = &process.pages.table_file;
    // SAFETY: the caller's promise. No state is reached before the first event from here on.
    let has_parted = unsafe {
        kept.renew(memory)
            || matches!(memory, TableMemory::File(_)) && kept.renew(TableMemory::Private)
    };
    if has_parted {
        engine.threads.forget_all();
        engine.ledger.live.disown();
        take_state(engine);
        process.mark();
    }
    has_parted
}

/// Separates this process's tables from those of its parent, while the thread may be in an event.
/// Unlike [`separate_tables`], this copies all tables, and the copies are at the same addresses.
///
/// # Safety
/// This is a copy of the process, and has one thread.
pub(crate) unsafe fn separate_inside_event(engine: &Engine) -> bool {
    let process = &engine.process;
    engine.log.forget();
    if process.is_sandboxed() {
        return false;
    }
    let kept = &process.pages.table_file;
    // SAFETY: the caller's promise.
    let has_parted = !kept.is_shared() || unsafe { kept.renew(TableMemory::PrivateWhole) };
    if has_parted {
        process.mark();
    }
    has_parted
}

/// Removes the state that this thread has in an engine from the thread's slot. The state itself
/// stays as it is.
fn take_state(engine: &Engine) {
    // SAFETY: the slot is this thread's own.
    unsafe {
        let slot = tls::current();
        if has_state(engine) {
            (*slot).state = std::ptr::null();
            (*slot).engine = std::ptr::null();
        }
    }
}

/// Whether this thread has a state in an engine.
pub(crate) fn has_state(engine: &Engine) -> bool {
    // SAFETY: the slot is this thread's own.
    let of_slot = unsafe { (*tls::current()).engine };
    // Only the address counts.
    of_slot.addr() == std::ptr::from_ref(&engine.process).addr()
}

/// Gives this thread a state again. The thread has the state until it ends.
pub(crate) fn give_state(engine: &'static Engine) {
    // SAFETY: the slot is this thread's own, and has no state.
    unsafe { first_event(engine, tls::current(), StateOwnership::Own) };
}

/// Gives the thread a state of this engine.
#[cold]
unsafe fn first_event(engine: &'static Engine, slot: *mut ThreadSlot, tables: StateOwnership) {
    const MAX_BORROWED_FREES: u16 = 1000;
    // SAFETY: the slot is this thread's own.
    if let Some(state) = unsafe { state::state_in_slot(slot).as_ref() } {
        // SAFETY: as above.
        unsafe { leave_engine(engine, slot, state) };
    }
    // SAFETY: as above.
    unsafe {
        if tables == StateOwnership::Borrowed && (*slot).frees < MAX_BORROWED_FREES {
            (*slot).frees += 1;
            (*slot).lent |= tls::BORROWED;
        }
    }
    let state = engine.threads.acquire(&engine.process);
    // SAFETY: as above. `busy` keeps what libc allocates here out of the ledger.
    unsafe {
        (*slot).state = state.cast();
        if state.is_null() {
            return;
        }
        (*slot).engine = state::engine_identity(&engine.process);
        if (*slot).lent == 0 {
            engine.threads.watch_end(slot);
        }
    }
}

/// Removes a thread's state in another engine, because the thread serves this engine from now on.
///
/// # Safety
/// The slot is this thread's own, and has this state.
unsafe fn leave_engine(engine: &Engine, slot: *mut ThreadSlot, state: &'static ThreadState) {
    // As at a thread's end, no signal handler comes in between.
    let mask = engine.process.block_signals();
    // SAFETY: the caller's contract.
    unsafe {
        (*slot).state = std::ptr::null();
        (*slot).engine = std::ptr::null();
        ((*slot).lent, (*slot).epoch) = ((*slot).lent & tls::ENDED, 0);
        (*slot).thread = 0;
    }
    state.leave();
    sys::restore_signals(mask);
}

/// Marks the thread as being inside the engine, and sets its countdown so high that it does not run
/// out meanwhile.
///
/// # Safety
/// The slot is this thread's own.
#[inline(always)]
unsafe fn enter(slot: *mut ThreadSlot) {
    // SAFETY: the caller's contract.
    unsafe {
        (*slot).busy = tls::INSIDE_ENGINE;
        (*slot).countdown = QUIET_COUNTDOWN;
        if cfg!(debug_assertions) {
            // A signal handler may have jumped out of the last event, which had some locks.
            (*slot).ranks = 0;
        }
    }
    compiler_fence(Ordering::SeqCst);
}

/// Lets the thread leave the engine, with the countdown `countdown`. Then makes the dump or scan
/// that has become due.
///
/// # Safety
/// The slot is this thread's own, and busy.
#[inline(always)]
unsafe fn leave(engine: &Engine, slot: *mut ThreadSlot, countdown: u64) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: the caller's contract.
    unsafe {
        // The thread is still busy. A handler that comes in between must not find a state that is
        // another thread's by then.
        if (*slot).lent != 0 {
            release_late(slot);
        }
        (*slot).countdown = countdown;
        (*slot).busy = 0;
    }
    if engine.dumping.due.is_pending() {
        engine.dumping.due.run();
    }
}

/// Records that the thread has had a countdown in this recording. Returns whether this is the
/// thread's first countdown in the recording.
///
/// # Safety
/// The slot is this thread's own.
unsafe fn note_countdown(engine: &Engine, slot: *mut ThreadSlot) -> bool {
    let epoch = engine.process.recorded.epoch().to_u64();
    // SAFETY: the caller's contract.
    unsafe { std::mem::replace(&mut (*slot).epoch, epoch) != epoch }
}

/// Whether the countdown of a sampled recording has run out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountdownState {
    /// The countdown ran out, which leads to an event.
    RanOut,
    /// The countdown has not run out, or the recording has no countdown.
    GoesOn,
}

/// An event of this thread. During the event, the thread is busy, so that its allocations are not
/// recorded. The event ends when this is dropped, or by [`finish`](Self::finish).
pub(crate) struct ThreadEvent {
    engine: &'static Engine,
    slot: *mut ThreadSlot,
    state: &'static ThreadState,
    /// Whether the event ends the thread's first countdown in this recording.
    ends_first_countdown: bool,
    /// The countdown with which the thread continues after the event.
    countdown: u64,
}

impl ThreadEvent {
    /// Enters the engine, for an event of the recording `epoch`. If there is no memory for the
    /// thread's tables, returns `None` and counts the event as lost. In that case, and after an
    /// event that is dropped, the thread continues with the countdown `otherwise`.
    ///
    /// # Safety
    /// The slot is this thread's own, and not busy.
    #[inline(always)]
    pub(crate) unsafe fn enter(
        engine: &'static Engine,
        slot: *mut ThreadSlot,
        tables: StateOwnership,
        countdown: CountdownState,
        epoch: RecordingEpoch,
        otherwise: u64,
    ) -> Option<Self> {
        // SAFETY: the caller's contract. The slot is busy from here on.
        let state = unsafe {
            enter(slot);
            acquire_state(engine, slot, tables)
        };
        // This is noted even if there is no memory: the next countdown is not the first one.
        // SAFETY: the caller's contract.
        let begins = countdown == CountdownState::RanOut && unsafe { note_countdown(engine, slot) };
        let Some(state) = state else {
            count(&engine.process.dropped.no_memory);
            // SAFETY: the slot is busy.
            unsafe { leave(engine, slot, otherwise) };
            return None;
        };
        state.epoch.set(epoch);
        Some(Self {
            engine,
            slot,
            state,
            ends_first_countdown: begins,
            countdown: otherwise,
        })
    }

    /// Returns the thread's two kinds of tables: those that other threads may read, and those that
    /// only the thread uses.
    #[inline(always)]
    pub(crate) fn tables(&mut self) -> (&'static ThreadState, &mut ThreadOwnState) {
        // SAFETY: this is the state's thread, in an event, and the reference lives as long as the
        // event is borrowed.
        (self.state, unsafe { self.state.own() })
    }

    /// Whether this event ends the thread's first countdown in this recording. Such a countdown
    /// runs out without choosing an allocation.
    pub(crate) fn ends_first_countdown(&self) -> bool {
        self.ends_first_countdown
    }

    /// Ends the event. The thread continues with `countdown`. If another recording has begun, it
    /// continues with 0, so that its next event belongs to the new recording.
    #[inline(always)]
    pub(crate) fn finish(mut self, countdown: u64) {
        let same = self.state.epoch.get() == self.engine.process.recorded.epoch();
        self.countdown = if same { countdown } else { 0 };
    }
}

impl Drop for ThreadEvent {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `enter` was given this thread's own slot, and made it busy.
        unsafe { leave(self.engine, self.slot, self.countdown) };
    }
}

/// Gives back the state that a thread has borrowed for one event.
///
/// # Safety
/// The slot is this thread's own, and busy.
#[cold]
pub(crate) unsafe fn release_late(slot: *mut ThreadSlot) {
    // SAFETY: the slot is this thread's own.
    unsafe {
        (*slot).lent &= tls::ENDED;
        if let Some(state) = state::state_in_slot(slot).as_ref() {
            (*slot).state = std::ptr::null();
            (*slot).engine = std::ptr::null();
            state.release();
        }
    }
}
