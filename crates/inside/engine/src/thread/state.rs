//! What a thread owns while it lives: counters, its last stack, its random numbers.
//!
//! States are never freed, except in a forked child before its first event. When a thread ends, the
//! next new one takes over its state with the counters in it, which are sums and belong to no
//! thread in particular.

mod free;

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::atomic::AtomicBool;
use crate::platform::lock::{ForkLock, FutexLock, rank};
use crate::platform::pages::PageSource;
use crate::platform::process::EngineProcess;
use crate::platform::sys;
use crate::platform::table_file::TableLifetime;
use crate::platform::tls::{self, EngineIdentity, ThreadSlot};
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

/// Tables of one thread at a time. Others look at them, so there is never a `&mut` to the whole
/// state.
pub(crate) struct ThreadState {
    /// The list that the state is of, and the process of both. They are set once, at the start.
    home: Option<(&'static ThreadStates, &'static EngineProcess)>,
    /// The next in the list of all states. It is set once.
    pub(crate) next: AtomicPtr<ThreadState>,
    /// The next of those that lie in the file of kept books.
    pub(crate) next_in_file: AtomicPtr<ThreadState>,
    /// The next state that no thread has, while no thread has this one.
    next_free: AtomicPtr<ThreadState>,
    /// The thread's slot while the thread lives, for [`ThreadStates::rewind_all`].
    slot: AtomicPtr<ThreadSlot>,
    /// Whether the thread has the books open.
    pub(crate) inside: AtomicBool,
    /// Which recording the thread's event is of. Only the thread uses it.
    pub(crate) epoch: Cell<u64>,
    /// Shared events since the thread last looked whether the heap is low. Only the thread uses it.
    pub(crate) shared_events: Cell<u32>,
    /// Bytes that count as in use already but are not. Only the thread changes it, except that
    /// another one may take it after waiting until the thread has closed the books.
    pub(crate) budget: ThreadBudget,
    /// What the thread has counted by size.
    pub(crate) sizes: SizeCounts,
    pub(crate) counters: ChunkedArray<StackCounters>,
    pub(crate) temporary: ChunkedArray<TemporarySum>,
    /// How sure the sums in the counters are, when sampling.
    pub(crate) spread: ChunkedArray<StackSpread>,
    own: UnsafeCell<ThreadOwnState>,
}

/// What only the thread itself looks at.
pub(crate) struct ThreadOwnState {
    pub(crate) random: SamplerRandom,
    pub(crate) recent: RecentAllocations,
    /// Bytes allocated and freed since they were last added to the process's.
    pub(crate) unreported: [u64; 2],
    /// The stack of the last event that had one.
    pub(crate) last_stack: Option<u32>,
    pub(crate) last_generation: u32,
    pub(crate) remembered: LastStack,
    pub(crate) script: ScriptStack,
    pub(crate) stacks: ThreadStacks,
}

/// All threads' states.
pub(crate) struct ThreadStates {
    pub(crate) all: AtomicPtr<ThreadState>,
    /// Those that lie in the file of kept books: what is in no file would hide the others.
    pub(crate) all_in_file: AtomicPtr<ThreadState>,
    /// The states that no thread has. However many threads live, the next one finds its state at
    /// once.
    free: FreeStates,
    /// Held while a thread's slot is reached from another thread, and when it ceases to be.
    slots: FutexLock<{ rank::SLOTS }>,
    key: ThreadEndKey,
    /// Their names and the kernel's numbers of them.
    pub(crate) names: ThreadNames,
}

/// The state of a slot's thread, null if it has none.
///
/// # Safety
/// The slot is this thread's own.
#[inline(always)]
pub(crate) unsafe fn state_in_slot(slot: *const ThreadSlot) -> *const ThreadState {
    // SAFETY: the caller's promise.
    unsafe { (*slot).state.cast() }
}

/// This thread's state, null if it has none.
fn current_state() -> *const ThreadState {
    // SAFETY: the slot is this thread's own.
    unsafe { state_in_slot(tls::current()) }
}

/// Puts a state that nobody else sees yet at the beginning of a list.
///
/// # Safety
/// It is a valid state, and stays.
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

/// The address by which a slot tells engines apart: that of an engine's process.
#[inline(always)]
pub(crate) fn engine_identity(process: &'static EngineProcess) -> *const EngineIdentity {
    std::ptr::from_ref(process).cast()
}

impl ThreadStates {
    /// No thread has a state yet.
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

    /// Every state there is.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static ThreadState> + use<> {
        let mut at = self.all.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: states are never freed while others go through the list, and only a forked
            // child changes `next`.
            let state = unsafe { at.as_ref()? };
            at = state.next.load(Ordering::Relaxed);
            Some(state)
        })
    }

    /// A state for the current thread: a dead thread's, or a new one; null without memory.
    #[cold]
    pub(crate) fn acquire(&'static self, process: &'static EngineProcess) -> *const ThreadState {
        if let Some(state) = self.free.pop() {
            // SAFETY: nobody else has it.
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
        // SAFETY: zeroed memory is a valid state; nobody else sees it until it is in the list.
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

    /// Called after fork, in the child. The other threads are gone, so their states are free.
    pub(crate) fn forget_others(&self) {
        let own = current_state();
        self.names.forget_all();
        // A state that was changing hands is on no list.
        self.free.clear();
        for state in self.all() {
            if !std::ptr::eq(state, own) {
                state.slot.store(std::ptr::null_mut(), Ordering::Relaxed);
                state.inside.store(false, Ordering::Relaxed);
                state.release();
            }
        }
    }

    /// Called after fork, in the child, before it has memory of its own for states: there is none
    /// any more.
    pub(crate) fn forget_all(&self) {
        self.free.clear();
        self.all.store(std::ptr::null_mut(), Ordering::Release);
        self.all_in_file
            .store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Called after fork, in the child. Keeps one state, which is given all that the others have,
    /// and gives the others' memory back. So a child does not change a page of theirs, and has
    /// nothing of them when its parent has ended. Returns false if there is no memory for a state.
    ///
    /// # Safety
    /// This is the process's only thread, and it is in no event. Nobody holds a state of another
    /// thread: the table of blocks has no owners, and no list is being gone through.
    pub(crate) unsafe fn keep_own(
        &'static self,
        process: &'static EngineProcess,
        give: impl FnOnce(&'static ThreadState),
    ) -> bool {
        self.free.clear();
        // SAFETY: a thread's own state is there as long as the thread.
        let own = unsafe { current_state().as_ref() };
        // The thread may have served another engine last.
        let found = own.filter(|state| std::ptr::eq(state.threads(), self));
        let kept = match found {
            Some(state) => state,
            // SAFETY: null, or a state that is the list's from now on.
            None => match unsafe { self.acquire(process).as_ref() } {
                Some(state) => state,
                None => return false,
            },
        };
        give(kept);
        // What follows the kept one in the list goes, too, so the list is read before it is cut.
        let (first, behind) = (
            self.all.load(Ordering::Relaxed),
            kept.next.load(Ordering::Relaxed),
        );
        let kept_at = std::ptr::from_ref(kept).cast_mut();
        // The list is cut before anything of it goes, for readers outside.
        kept.next.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.all.store(kept_at, Ordering::Release);
        for mut at in [first, behind] {
            while !at.is_null() && at != kept_at {
                // SAFETY: a state of this list, which nobody has any more: the caller's promise.
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

    /// Makes every thread's next allocation look what is recorded now, because it ends the
    /// countdowns of an earlier recording.
    pub(crate) fn rewind_all(&self, process: &EngineProcess) {
        let _slots = self.slots.lock(process);
        // A thread's own subtraction may overwrite one store, hardly three with a barrier between
        // them.
        for _ in 0..3 {
            for state in self.all() {
                let slot = state.slot.load(Ordering::Acquire);
                // SAFETY: the lock keeps the thread from ending; a thread inside the engine sets
                // the countdown itself.
                unsafe {
                    if !slot.is_null() && (&raw const (*slot).busy).read_volatile() == 0 {
                        (&raw mut (*slot).countdown).write_volatile(0);
                    }
                }
            }
            sys::barrier();
        }
    }

    /// Arranges for a slot's state to be given back when its thread ends, and remembers where the
    /// slot is. If libc will not tell of that end, the slot is not kept: it may be gone.
    ///
    /// # Safety
    /// The slot and its state are this thread's own.
    pub(crate) unsafe fn watch_end(&self, slot: *mut ThreadSlot) {
        // SAFETY: the key exists. Keys made early are stored without allocating.
        let watch = |key| unsafe { libc::pthread_setspecific(key, slot.cast()) } == 0;
        if self.key.get().is_some_and(watch) {
            // SAFETY: the caller's promise.
            unsafe { (*state_in_slot(slot)).slot.store(slot, Ordering::Release) };
        }
    }

    /// Makes the key whose destructor tells of a thread's end. Only the first call makes one. It
    /// comes as early as possible.
    pub(crate) fn prepare(&self) {
        self.key.make();
    }

    /// The lock that fork must hold.
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
    /// What only the thread itself looks at.
    ///
    /// # Safety
    /// The caller is the state's thread, in the middle of an event, and asks once in it.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "one thread, one event, one reference")]
    pub(crate) unsafe fn own(&self) -> &mut ThreadOwnState {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.own.get() }
    }

    /// The list that the state is of, and its process.
    fn home(&self) -> (&'static ThreadStates, &'static EngineProcess) {
        // SAFETY: every state in use came from `ThreadStates::acquire`, which sets it.
        unsafe { self.home.unwrap_unchecked() }
    }

    /// The process whose state this is.
    #[inline(always)]
    pub(crate) fn process(&self) -> &'static EngineProcess {
        self.home().1
    }

    /// The states of all threads, of which this is one.
    pub(crate) fn threads(&self) -> &'static ThreadStates {
        self.home().0
    }

    /// Whether this is the calling thread's state.
    pub(crate) fn is_own(&self) -> bool {
        std::ptr::eq(self, current_state())
    }

    /// The counters of a stack, mapped if they were not; `None` without memory.
    #[inline(always)]
    pub(crate) fn counters(
        &self,
        stack: u32,
        pages: &PageSource,
    ) -> Option<&'static StackCounters> {
        let counters = self
            .counters
            .touch(stack as usize, pages, TableLifetime::Passing);
        // SAFETY: they are mapped for good, and made of atomics.
        unsafe { counters.as_ref() }
    }

    /// As [`spread`](Self::spread), in memory of this lot if it is not mapped yet.
    pub(crate) fn spread_in(
        &self,
        lot: TableLifetime,
        stack: u32,
        pages: &PageSource,
    ) -> Option<&'static StackSpread> {
        // SAFETY: as above.
        unsafe { self.spread.touch(stack as usize, pages, lot).as_ref() }
    }

    /// Gives the memory of all sums back.
    ///
    /// # Safety
    /// Nobody uses them any more.
    pub(crate) unsafe fn give_back(&self, pages: &PageSource) {
        // SAFETY: the caller's promise.
        unsafe {
            self.counters.give_back(pages);
            self.temporary.give_back(pages);
            self.spread.give_back(pages);
        }
    }

    /// Where the counters of a stack are, if they are mapped: for a hint.
    #[inline(always)]
    pub(crate) fn place_of_counters(&self, stack: u32) -> *const u8 {
        self.counters.get(stack as usize).cast_const().cast()
    }

    /// The sums of a stack's temporary allocations; `None` without memory.
    #[inline(always)]
    pub(crate) fn temporary(
        &self,
        stack: u32,
        pages: &PageSource,
    ) -> Option<&'static TemporarySum> {
        let temporary = self
            .temporary
            .touch(stack as usize, pages, TableLifetime::Passing);
        // SAFETY: as above.
        unsafe { temporary.as_ref() }
    }

    /// How sure the sums of a stack are; `None` without memory.
    #[inline(always)]
    pub(crate) fn spread(&self, stack: u32, pages: &PageSource) -> Option<&'static StackSpread> {
        let spread = self
            .spread
            .touch(stack as usize, pages, TableLifetime::Passing);
        // SAFETY: as above.
        unsafe { spread.as_ref() }
    }

    /// What the state holds of a stack, as far as it is mapped.
    pub(crate) fn stack_sums(&self, stack: usize) -> ThreadStackSums {
        // SAFETY: all three are mapped for good, and made of atomics.
        unsafe {
            ThreadStackSums {
                counters: self.counters.get(stack).as_ref(),
                temporary: self.temporary.get(stack).as_ref(),
                spread: self.spread.get(stack).as_ref(),
            }
        }
    }

    /// How many bytes of the state are in memory.
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

    /// Gives the state to whoever needs one next.
    pub(crate) fn release(&'static self) {
        self.home().0.free.push(self);
    }

    /// Takes the state from its thread: it ends, or serves another engine.
    pub(crate) fn leave(&'static self) {
        let (threads, process) = self.home();
        let slots = threads.slots.lock(process);
        self.slot.store(std::ptr::null_mut(), Ordering::Release);
        drop(slots);
        // A thread that was cancelled in the middle of an event must not be waited for.
        self.inside.store(false, Ordering::Release);
        self.release();
    }
}

/// What a thread holds of one stack.
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

/// Called by libc when a thread ends. There may be no other call, so the thread keeps nothing from
/// here on. What later destructors allocate and free has a state for one event at a time.
unsafe extern "C" fn end_thread(slot: *mut libc::c_void) {
    let slot = slot.cast::<ThreadSlot>();
    // SAFETY: the slot is the ending thread's own, and that thread is the one that runs this.
    unsafe {
        let state = state_in_slot(slot).as_ref();
        if state.is_some_and(|state| state.process().shares_tables()) {
            // The state is another process's.
            (*slot).state = std::ptr::null();
            (*slot).engine = std::ptr::null();
            return;
        }
        // A handler that forks here would wait for its own thread; one that allocates must not find
        // a state that is given away.
        let mask = state.map(|state| state.process().block_signals());
        (*slot).lent |= tls::ENDED;
        // The thread may have been cancelled in the middle of an event, which held locks.
        (*slot).ranks = 0;
        if let Some(state) = state_in_slot(slot).as_ref() {
            (*slot).state = std::ptr::null();
            (*slot).engine = std::ptr::null();
            state.threads().names.end(state.process(), slot);
            state.leave();
        }
        mask.into_iter().for_each(sys::restore_signals);
    }
}
