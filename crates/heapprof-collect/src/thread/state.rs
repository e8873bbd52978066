//! What a thread owns while it lives: counters, its last stack, its random numbers.
//!
//! States are never freed. When a thread ends, the next new one takes over its state with the
//! counters in it, which are sums and belong to no thread in particular.

mod free;

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::platform::lock::Lock;
use crate::platform::sys;
use crate::platform::tls::{self, ThreadSlot};
use crate::stack::capture::LastStack;
use crate::tables::chunks::Chunks;
use crate::tables::counters::{self, Recent, Temporary};
use crate::tables::sampler::Random;
use crate::tables::spread::Spread;
use free::Free;

/// Tables of one thread at a time. Others look at them, so there is never a `&mut` to the whole
/// state.
pub(crate) struct ThreadState {
    /// The next in the list of all states. It is set once.
    next: *mut ThreadState,
    /// The next state that no thread has, while no thread has this one.
    next_free: AtomicPtr<ThreadState>,
    /// The thread's block while the thread lives, for [`rewind_all`].
    block: AtomicPtr<ThreadSlot>,
    /// Whether the thread has the books open.
    pub(crate) inside: AtomicBool,
    /// Which recording the thread's event is of. Only the thread uses it.
    pub(crate) recording: Cell<u64>,
    /// Shared events since the thread last looked whether the heap is low. Only the thread uses it.
    pub(crate) shared_events: Cell<u32>,
    /// Bytes that count as in use already but are not. Only the thread uses it, except that another
    /// one may take it after waiting until the thread has closed the books.
    pub(crate) budget: Cell<i64>,
    pub(crate) counters: Chunks<counters::StackCounters>,
    pub(crate) temporary: Chunks<Temporary>,
    /// How sure the sums in the counters are, when sampling.
    pub(crate) spread: Chunks<Spread>,
    own: UnsafeCell<Own>,
}

/// What only the thread itself looks at.
pub(crate) struct Own {
    pub(crate) random: Random,
    pub(crate) recent: Recent,
    /// Bytes allocated and freed since they were last added to the process's.
    pub(crate) unreported: [u64; 2],
    /// The stack of the last event that had one.
    pub(crate) last_stack: Option<u32>,
    pub(crate) last_generation: u32,
    pub(crate) remembered: LastStack,
}

static ALL: AtomicPtr<ThreadState> = AtomicPtr::new(std::ptr::null_mut());
/// The states that no thread has. However many threads live, the next one finds its state at once.
static FREE: Free = Free::new();

/// The state of a block's thread, null if it has none.
///
/// # Safety
/// The block is this thread's own.
#[inline(always)]
pub(crate) unsafe fn of(block: *const ThreadSlot) -> *const ThreadState {
    // SAFETY: the caller's promise.
    unsafe { (*block).state.cast() }
}

/// This thread's state, null if it has none.
pub(crate) fn own() -> *const ThreadState {
    // SAFETY: the block is this thread's own.
    unsafe { of(tls::current()) }
}

/// Every state there is.
pub(crate) fn all() -> impl Iterator<Item = &'static ThreadState> {
    let mut at = ALL.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: states are never freed, and `next` never changes once a state is in the list.
        let state = unsafe { at.as_ref()? };
        at = state.next;
        Some(state)
    })
}

impl ThreadState {
    /// A state for the current thread: a dead thread's, or a new one; null without memory.
    #[cold]
    pub(crate) fn acquire() -> *const Self {
        if let Some(state) = FREE.pop() {
            // SAFETY: nobody else has it.
            unsafe { state.own() }.remembered.reset();
            return state;
        }
        let new = sys::map(size_of::<Self>()).cast::<Self>();
        if new.is_null() {
            return new;
        }
        // SAFETY: zeroed memory is a valid state; nobody else sees it until it is in the list.
        unsafe {
            let own = (*new).own.get_mut();
            own.random.seed(new as u64);
            own.remembered.reset();
            let mut head = ALL.load(Ordering::Acquire);
            loop {
                (*new).next = head;
                match ALL.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return new,
                    Err(now) => head = now,
                }
            }
        }
    }

    /// What only the thread itself looks at.
    ///
    /// # Safety
    /// The caller is the state's thread, in the middle of an event, and asks once in it.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "one thread, one event, one reference")]
    pub(crate) unsafe fn own(&self) -> &mut Own {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.own.get() }
    }

    /// How many bytes of the state are in memory.
    pub(crate) fn resident(&self) -> usize {
        let own = sys::resident(std::ptr::from_ref(self).cast(), size_of::<Self>());
        own + self.counters.resident() + self.temporary.resident() + self.spread.resident()
    }

    /// Gives the state to whoever needs one next.
    pub(crate) fn release(&'static self) {
        FREE.push(self);
    }
}

/// Called after fork, in the child. The other threads are gone, so their states are free.
pub(crate) fn forget_other_threads() {
    let own = own();
    // A state that was changing hands is on no list.
    FREE.clear();
    for state in all() {
        if !std::ptr::eq(state, own) {
            state.block.store(std::ptr::null_mut(), Ordering::Relaxed);
            state.inside.store(false, Ordering::Relaxed);
            state.release();
        }
    }
}

/// Held while a thread's block is reached from another thread, and when it ceases to be.
static BLOCKS: Lock = Lock::new();

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static Lock {
    &BLOCKS
}

/// Remembers where a living thread's block is.
pub(crate) fn know(block: *mut ThreadSlot) {
    // SAFETY: the block and its state are this thread's own.
    unsafe { (*of(block)).block.store(block, Ordering::Release) };
}

/// Makes every thread's next allocation look what is recorded now, because it ends the countdowns
/// of an earlier recording.
pub(crate) fn rewind_all() {
    let _blocks = BLOCKS.lock();
    // A thread's own subtraction may overwrite one store, hardly three with a barrier between them.
    for _ in 0..3 {
        for state in all() {
            let block = state.block.load(Ordering::Acquire);
            // SAFETY: the lock keeps the thread from ending; a thread inside the collector sets the
            // countdown itself.
            unsafe {
                if !block.is_null() && (&raw const (*block).busy).read_volatile() == 0 {
                    (&raw mut (*block).countdown).write_volatile(0);
                }
            }
        }
        sys::barrier();
    }
}

/// Arranges for `block`'s state to be given back when its thread ends. Returns false if libc will
/// not tell of that.
pub(crate) fn watch_end(block: *mut ThreadSlot) -> bool {
    // SAFETY: the key exists. Keys made early are stored without allocating.
    let watched = |key| unsafe { libc::pthread_setspecific(key, block.cast()) } == 0;
    KEY.get().is_some_and(watched)
}

/// Makes the key whose destructor tells of a thread's end. Only the first call makes one. It comes
/// as early as possible.
pub fn prepare() {
    KEY.make();
}

static KEY: Key = Key(std::sync::atomic::AtomicU32::new(u32::MAX));

struct Key(std::sync::atomic::AtomicU32);

impl Key {
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
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        if made == 0 {
            self.0.store(key, Ordering::Release);
        }
    }
}

/// Called by libc when a thread ends. There may be no other call, so the thread keeps nothing from
/// here on. What later destructors allocate and free has a state for one event at a time.
unsafe extern "C" fn ended(block: *mut libc::c_void) {
    let block = block.cast::<ThreadSlot>();
    // SAFETY: the block is the ending thread's own, and that thread is the one that runs this.
    unsafe {
        // A handler that forks here would wait for its own thread; one that allocates must not find
        // a state that is given away.
        let mask = sys::block_signals();
        (*block).lent |= tls::ENDED;
        let state = of(block);
        (*block).state = std::ptr::null();
        if let Some(state) = state.as_ref() {
            let blocks = BLOCKS.lock();
            state.block.store(std::ptr::null_mut(), Ordering::Release);
            drop(blocks);
            // A thread that was cancelled in the middle of an event must not be waited for.
            state.inside.store(false, Ordering::Release);
            state.release();
        }
        sys::restore_signals(mask);
    }
}
