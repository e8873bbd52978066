//! The state of a thread while it lives: counters, its last stack, its random numbers.
//!
//! States are never freed, except in a forked child before its first event. When a thread ends, the
//! next new thread takes over its state. The counters in it are kept, because they are sums that
//! belong to no particular thread.

mod free;

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use heapprof_abi::{MappingGeneration, RecordingEpoch, StackNumber};
use heapprof_platform::atomic::AtomicBool;
use heapprof_platform::lock::{ForkLock, FutexLock, rank};
use heapprof_platform::pages::PageSource;
use heapprof_platform::sys;
use heapprof_platform::table_file::TableLifetime;
use heapprof_platform::tls::{self, EngineIdentity, ThreadSlot};

use crate::process::EngineProcess;
use crate::stack::by_thread::ThreadStacks;
use crate::stack::capture::LastStack;
use crate::stack::script::ScriptStack;
use crate::tables::chunks::ChunkedArray;
use crate::tables::counters::{RecentAllocations, StackCounters, TemporarySum, ThreadBudget};
use crate::tables::sampler::SamplerRandom;
use crate::tables::sizes::SizeCounts;
use crate::tables::spread::StackSpread;
use crate::thread::names::ThreadNames;
use free::FreeStates;

/// The tables of a thread. They belong to one thread at a time, but other threads read them, so
/// there is never a `&mut` to the whole state.
pub(crate) struct ThreadState {
    /// The list to which the state belongs, and the process. Both are set once, at the start.
    home: Option<(&'static ThreadStates, &'static EngineProcess)>,
    /// The next state in the list of all states. It is set once.
    pub(crate) next: AtomicPtr<ThreadState>,
    /// The next state in the list of states in the file of a saved ledger.
    pub(crate) next_in_file: AtomicPtr<ThreadState>,
    /// The next free state, while this state is free.
    next_free: AtomicPtr<ThreadState>,
    /// The thread's slot while the thread lives, for [`ThreadStates::rewind_all`].
    slot: AtomicPtr<ThreadSlot>,
    /// Whether the thread has the ledger open.
    pub(crate) inside: AtomicBool,
    /// The recording to which the thread's event belongs. Only the thread uses it.
    pub(crate) epoch: Cell<RecordingEpoch>,
    /// Number of events in a shared access mode since the thread last checked whether the heap is
    /// low. Only the thread uses it.
    pub(crate) shared_events: Cell<u32>,
    /// The thread's budget: bytes that already count as in use, but are not in use yet. Only the
    /// thread changes the budget. Another thread may take it, once this thread has closed the
    /// ledger.
    pub(crate) budget: ThreadBudget,
    /// The thread's counts by size.
    pub(crate) sizes: SizeCounts,
    pub(crate) counters: ChunkedArray<StackCounters>,
    pub(crate) temporary: ChunkedArray<TemporarySum>,
    /// The spread of the sums in the counters, when sampling.
    pub(crate) spread: ChunkedArray<StackSpread>,
    own: UnsafeCell<ThreadOwnState>,
}

/// The part of a thread's state that only the thread itself reads.
pub(crate) struct ThreadOwnState {
    pub(crate) random: SamplerRandom,
    pub(crate) recent: RecentAllocations,
    /// Bytes allocated and freed since they were last added to the process's sums.
    pub(crate) unreported: [u64; 2],
    /// Number of the stack of the last event that had a stack.
    pub(crate) last_stack: Option<StackNumber>,
    pub(crate) last_generation: MappingGeneration,
    pub(crate) remembered: LastStack,
    pub(crate) script: ScriptStack,
    pub(crate) stacks: ThreadStacks,
}

/// The states of all threads.
pub(crate) struct ThreadStates {
    pub(crate) all: AtomicPtr<ThreadState>,
    /// The list of the states in the file of a saved ledger. This list is separate, because a state
    /// outside the file would hide the states behind it.
    pub(crate) all_in_file: AtomicPtr<ThreadState>,
    /// The states without a thread. A new thread takes a state from them at once, however many
    /// threads there are.
    free: FreeStates,
    /// Locked while a thread reads another thread's slot, which is in thread-local memory, and
    /// while a thread gives up its slot.
    slots: FutexLock<{ rank::SLOTS }>,
    key: ThreadEndKey,
    /// The threads' names and kernel ids.
    pub(crate) names: ThreadNames,
}

/// Returns the state of a slot's thread; null if the thread has none.
///
/// # Safety
/// The slot is this thread's own.
#[inline(always)]
pub(crate) unsafe fn state_in_slot(slot: *const ThreadSlot) -> *const ThreadState {
    // SAFETY: the caller's promise.
    unsafe { (*slot).state.cast() }
}

/// Returns this thread's state; null if it has none.
fn current_state() -> *const ThreadState {
    // SAFETY: the slot is this thread's own.
    unsafe { state_in_slot(tls::current()) }
}

/// Puts a state that no other thread can reach yet at the beginning of a list.
///
/// # Safety
/// `new` is a valid state, and stays.
unsafe fn push(
    list: &AtomicPtr<ThreadState>,
    new: *mut ThreadState,
    next: fn(&ThreadState) -> &AtomicPtr<ThreadState>,
) {
    let mut head = list.load(Ordering::Acquire);
    loop {
        // SAFETY: the caller's promise.
        next(unsafe { &*new }).store(head, Ordering::Relaxed);
        match list.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Returns the address by which a slot distinguishes engines: the address of an engine's process.
#[inline(always)]
pub(crate) fn engine_identity(process: &'static EngineProcess) -> *const EngineIdentity {
    std::ptr::from_ref(process).cast()
}

impl ThreadStates {
    /// Makes a list without states.
    pub(crate) const fn new() -> Self {
        Self {
            all: AtomicPtr::new(std::ptr::null_mut()),
            all_in_file: AtomicPtr::new(std::ptr::null_mut()),
            free: FreeStates::new(),
            slots: FutexLock::new(),
            key: ThreadEndKey(AtomicU32::new(u32::MAX)),
            names: ThreadNames::new(),
        }
    }

    /// Returns all states.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static ThreadState> + use<> {
        let mut at = self.all.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: states are never freed while other threads go through the list, and only a
            // forked child changes `next`.
            let state = unsafe { at.as_ref()? };
            at = state.next.load(Ordering::Relaxed);
            Some(state)
        })
    }

    /// Returns a state for the current thread: the state of an ended thread, or a new state. Null
    /// if there is no memory.
    #[cold]
    pub(crate) fn acquire(&'static self, process: &'static EngineProcess) -> *const ThreadState {
        if let Some(state) = self.free.pop() {
            // SAFETY: no other thread has this state.
            let own = unsafe { state.own() };
            own.remembered.reset();
            own.script.reset();
            return state;
        }
        let new = process
            .pages
            .map(size_of::<ThreadState>(), TableLifetime::Passing)
            .cast::<ThreadState>();
        if new.is_null() {
            return new;
        }
        // SAFETY: zeroed memory is a valid state; no other thread can reach it until it is in the
        // list.
        unsafe {
            (*new).home = Some((self, process));
            (&raw mut (*new).inside).write(AtomicBool::new(false));
            let own = (*new).own.get_mut();
            own.random.seed(new as u64);
            own.remembered.reset();
            own.script.reset();
            if process.pages.table_file.holds(new.cast_const().cast()) {
                push(&self.all_in_file, new, |state| &state.next_in_file);
                process.pages.copy(&self.all_in_file);
            }
            push(&self.all, new, |state| &state.next);
        }
        new
    }

    /// Frees the states of the other threads, which do not exist in a forked child.
    pub(crate) fn forget_others(&self) {
        let own = current_state();
        self.names.forget_all();
        // A state that was just passed from one thread to another is on no list.
        self.free.clear();
        for state in self.all() {
            if !std::ptr::eq(state, own) {
                state.slot.store(std::ptr::null_mut(), Ordering::Relaxed);
                state.inside.store(false, Ordering::Relaxed);
                state.release();
            }
        }
    }

    /// Empties the list, in a forked child that has no separate memory for states yet.
    pub(crate) fn forget_all(&self) {
        self.free.clear();
        self.all.store(std::ptr::null_mut(), Ordering::Release);
        self.all_in_file
            .store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Reduces the list to one state, in a forked child. `give` adds the sums of the other states
    /// to it, and then the memory of the other states is unmapped. So the child does not write to
    /// their pages, which it shares with its parent, and does not retain them when the parent has
    /// ended. Returns false if there is no memory for a state.
    ///
    /// # Safety
    /// This is the process's only thread, and it is in no event. No code uses a state of another
    /// thread: the table of blocks has no owners, and no list is being read.
    pub(crate) unsafe fn keep_own(
        &'static self,
        process: &'static EngineProcess,
        give: impl FnOnce(&'static ThreadState),
    ) -> bool {
        self.free.clear();
        // SAFETY: a thread's own state exists as long as the thread.
        let own = unsafe { current_state().as_ref() };
        // The thread may have served another engine last.
        let found = own.filter(|state| std::ptr::eq(state.threads(), self));
        let kept = match found {
            Some(state) => state,
            // SAFETY: null, or a state that belongs to this list from now on.
            None => match unsafe { self.acquire(process).as_ref() } {
                Some(state) => state,
                None => return false,
            },
        };
        give(kept);
        // The states behind the kept one are unmapped, too, so the list is read before it is cut.
        let (first, behind) = (
            self.all.load(Ordering::Relaxed),
            kept.next.load(Ordering::Relaxed),
        );
        let kept_at = std::ptr::from_ref(kept).cast_mut();
        // The list is cut before any of its states is unmapped, for readers outside.
        kept.next.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.all.store(kept_at, Ordering::Release);
        for mut at in [first, behind] {
            while !at.is_null() && at != kept_at {
                // SAFETY: a state of this list, which no code uses any more, as the caller
                // promises.
                unsafe {
                    let next = (*at).next.load(Ordering::Relaxed);
                    (*at).give_back(&process.pages);
                    process.pages.unmap(at.cast(), size_of::<ThreadState>());
                    at = next;
                }
            }
        }
        if found.is_none() {
            kept.release();
        }
        self.names.forget_all();
        true
    }

    /// Ends the countdowns of an earlier recording, so that every thread's next allocation checks
    /// the current recording.
    pub(crate) fn rewind_all(&self, process: &EngineProcess) {
        let _slots = self.slots.lock(process);
        // A thread's own subtraction may overwrite one store, but hardly three with a barrier
        // between them.
        for _ in 0..3 {
            for state in self.all() {
                let slot = state.slot.load(Ordering::Acquire);
                if slot.is_null() {
                    continue;
                }
                // SAFETY: the lock keeps the thread from ending; a thread inside the engine sets
                // the countdown itself. One inside an allocator gets the kept one back.
                unsafe {
                    match (&raw const (*slot).busy).read_volatile() {
                        0 => (&raw mut (*slot).countdown).write_volatile(0),
                        tls::INSIDE_ALLOCATOR => {
                            (&raw mut (*slot).call_countdown).write_volatile(0);
                        }
                        _ => {}
                    }
                }
            }
            sys::barrier();
        }
    }

    /// Arranges that a slot's state is released when its thread ends, and stores the slot's
    /// address. If libc can't report the thread's end, the address is not stored, because the slot
    /// may cease to exist.
    ///
    /// # Safety
    /// The slot and its state are this thread's own.
    pub(crate) unsafe fn watch_end(&self, slot: *mut ThreadSlot) {
        // SAFETY: the key exists. Values of keys that were made early are stored without
        // allocating.
        let watch = |key| unsafe { libc::pthread_setspecific(key, slot.cast()) } == 0;
        if self.key.get().is_some_and(watch) {
            // SAFETY: the caller's promise.
            unsafe { (*state_in_slot(slot)).slot.store(slot, Ordering::Release) };
        }
    }

    /// Makes the key whose destructor reports the end of a thread. Later calls do nothing. This is
    /// called as early as possible.
    pub(crate) fn prepare(&self) {
        self.key.make();
    }

    /// Returns the lock that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 1] {
        let Self {
            all: _,
            all_in_file: _,
            free: _,
            slots,
            key: _,
            names: _,
        } = self;
        [slots]
    }
}

impl ThreadState {
    /// Returns the part of the state that only the thread itself reads.
    ///
    /// # Safety
    /// The caller is the state's thread, in the middle of an event, and calls this once in that
    /// event.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "one thread, one event, one reference")]
    pub(crate) unsafe fn own(&self) -> &mut ThreadOwnState {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.own.get() }
    }

    /// Returns the list to which the state belongs, and its process.
    fn home(&self) -> (&'static ThreadStates, &'static EngineProcess) {
        // SAFETY: every state in use came from `ThreadStates::acquire`, which sets `home`.
        unsafe { self.home.unwrap_unchecked() }
    }

    /// Returns the process to which the state belongs.
    #[inline(always)]
    pub(crate) fn process(&self) -> &'static EngineProcess {
        self.home().1
    }

    /// Returns the list of the states of all threads, to which this state belongs.
    pub(crate) fn threads(&self) -> &'static ThreadStates {
        self.home().0
    }

    /// Whether this is the calling thread's state.
    pub(crate) fn is_own(&self) -> bool {
        std::ptr::eq(self, current_state())
    }

    /// Returns the counters of a stack, and maps them if necessary; `None` if there is no memory.
    #[inline(always)]
    pub(crate) fn counters(
        &self,
        stack: StackNumber,
        pages: &PageSource,
    ) -> Option<&'static StackCounters> {
        let counters = self
            .counters
            .touch(stack.to_index(), pages, TableLifetime::Passing);
        // SAFETY: the counters are mapped for good, and made of atomics.
        unsafe { counters.as_ref() }
    }

    /// Returns the spread of a stack's sums. If necessary, maps its memory with this lifetime.
    /// `None` if there is no memory.
    pub(crate) fn spread_in(
        &self,
        lot: TableLifetime,
        stack: StackNumber,
        pages: &PageSource,
    ) -> Option<&'static StackSpread> {
        // SAFETY: the entries are mapped for good, and made of atomics.
        unsafe { self.spread.touch(stack.to_index(), pages, lot).as_ref() }
    }

    /// Unmaps the memory of all sums.
    ///
    /// # Safety
    /// No code uses the sums any more.
    pub(crate) unsafe fn give_back(&self, pages: &PageSource) {
        // SAFETY: the caller's promise.
        unsafe {
            self.counters.give_back(pages);
            self.temporary.give_back(pages);
            self.spread.give_back(pages);
        }
    }

    /// Returns the address of a stack's counters, for a prefetch; null if they are not mapped.
    #[inline(always)]
    pub(crate) fn place_of_counters(&self, stack: StackNumber) -> *const u8 {
        self.counters.get(stack.to_index()).cast_const().cast()
    }

    /// Returns the sums of a stack's temporary allocations; `None` if there is no memory.
    #[inline(always)]
    pub(crate) fn temporary(
        &self,
        stack: StackNumber,
        pages: &PageSource,
    ) -> Option<&'static TemporarySum> {
        let temporary = self
            .temporary
            .touch(stack.to_index(), pages, TableLifetime::Passing);
        // SAFETY: the sums are mapped for good, and made of atomics.
        unsafe { temporary.as_ref() }
    }

    /// Returns the spread of a stack's sums; `None` if there is no memory.
    #[inline(always)]
    pub(crate) fn spread(
        &self,
        stack: StackNumber,
        pages: &PageSource,
    ) -> Option<&'static StackSpread> {
        let spread = self
            .spread
            .touch(stack.to_index(), pages, TableLifetime::Passing);
        // SAFETY: the entries are mapped for good, and made of atomics.
        unsafe { spread.as_ref() }
    }

    /// Returns the state's sums of a stack, as far as they are mapped.
    pub(crate) fn stack_sums(&self, stack: StackNumber) -> ThreadStackSums {
        let stack = stack.to_index();
        // SAFETY: all three are mapped for good, and made of atomics.
        unsafe {
            ThreadStackSums {
                counters: self.counters.get(stack).as_ref(),
                temporary: self.temporary.get(stack).as_ref(),
                spread: self.spread.get(stack).as_ref(),
            }
        }
    }

    /// Returns how many bytes of the state are resident.
    pub(crate) fn resident(&self) -> usize {
        let pages = &self.process().pages;
        let own = pages.resident(std::ptr::from_ref(self).cast(), size_of::<Self>());
        let tables = [
            self.counters.resident(pages),
            self.temporary.resident(pages),
            self.spread.resident(pages),
        ];
        own + tables.iter().sum::<usize>()
    }

    /// Releases the state, for the next thread that needs a state.
    pub(crate) fn release(&'static self) {
        self.home().0.free.push(self);
    }

    /// Separates the state from its thread, which ends or serves another engine.
    pub(crate) fn leave(&'static self) {
        let (threads, process) = self.home();
        let slots = threads.slots.lock(process);
        self.slot.store(std::ptr::null_mut(), Ordering::Release);
        drop(slots);
        // No thread must wait for one that was cancelled in the middle of an event.
        self.inside.store(false, Ordering::Release);
        self.release();
    }
}

/// A thread's sums of one stack.
pub(crate) struct ThreadStackSums {
    pub(crate) counters: Option<&'static StackCounters>,
    pub(crate) temporary: Option<&'static TemporarySum>,
    pub(crate) spread: Option<&'static StackSpread>,
}

struct ThreadEndKey(AtomicU32);

impl ThreadEndKey {
    fn get(&self) -> Option<libc::pthread_key_t> {
        let key = self.0.load(Ordering::Acquire);
        (key != u32::MAX).then_some(key)
    }

    fn make(&self) {
        let mut key = 0;
        if self.get().is_some() {
            return;
        }
        // SAFETY: `key` receives the new key; the destructor is a function of this library, which
        // is never unloaded.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(end_thread)) };
        if made == 0 {
            self.0.store(key, Ordering::Release);
        }
    }
}

/// Removes the state from a slot.
///
/// # Safety
/// The slot is this thread's own.
unsafe fn clear_state(slot: *mut ThreadSlot) {
    // SAFETY: the caller's promise.
    unsafe {
        (*slot).state = std::ptr::null();
        (*slot).engine = std::ptr::null();
    }
}

/// Releases the state of a thread that ends. libc calls this at the thread's end, and may not call
/// it again. So the thread keeps no state from here on: each allocation or free in a later
/// destructor gets a state for one event.
unsafe extern "C" fn end_thread(slot: *mut libc::c_void) {
    let slot = slot.cast::<ThreadSlot>();
    // SAFETY: the slot belongs to the ending thread, which runs this.
    let state = unsafe { state_in_slot(slot).as_ref() };
    if state.is_some_and(|state| state.process().shares_tables()) {
        // The state belongs to another process.
        // SAFETY: as above.
        unsafe { clear_state(slot) };
        return;
    }
    // A handler that forks here would wait for its own thread; one that allocates must not find a
    // state that is released.
    let mask = state.map(|state| state.process().block_signals());
    // SAFETY: as above.
    unsafe {
        (*slot).lent |= tls::ENDED;
        // The thread may have been cancelled in the middle of an event, with locks taken.
        (*slot).ranks = 0;
    }
    // SAFETY: as above. The state stays when it has left the slot.
    unsafe {
        if let Some(state) = state_in_slot(slot).as_ref() {
            clear_state(slot);
            state.threads().names.end(state.process(), slot);
            state.leave();
        }
    }
    mask.into_iter().for_each(sys::restore_signals);
}
