//! Python's small objects, which never reach malloc: its allocators are wrapped by ours.
//!
//! Python takes requests up to 512 bytes from arenas that it maps itself. So a wrapper around the
//! allocators of its domains `mem` and `obj` records what is so small, and leaves the rest to
//! malloc's hook. `PyMem_SetAllocator` is Python's own way to do so. Before `main` the wrappers are
//! there from the first object on. Python sets its table anew where it is configured (`-X dev`,
//! `PYTHONMALLOC`) and, since 3.12, when it is initialized a second time, so the table is looked at
//! again now and then, by a thread that holds the GIL: only such threads use these domains.
//!
//! What is underneath decides: with `PYTHONMALLOC=malloc` nothing is small, because malloc's hook
//! sees everything. Debug hooks stay on top of the wrappers, so a request is longer by 24 bytes.
//!
//! A Python without the GIL has requests of every size from a mimalloc inside it, so the wrappers
//! record every size, unless nothing of it is wanted. Its threads must not wait for Python's own
//! lock in the midst of an allocation, because others may then collect garbage. So one thread looks
//! at the tables, and only until they are as they should be, and wrappers stay for good.

mod wrappers;

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{
    AtomicBool, AtomicI8, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use heapprof_engine::RecordingMode;
use heapprof_memory::Memory;
use heapprof_memory::loaded::LoadedObject;

use crate::kernel_memory::KernelMemory;
use wrappers::{CALLOC, FREE, MALLOC, REALLOC, arena_alloc, arena_free};

/// Python's `PyMemAllocatorEx`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PythonAllocator {
    context: *mut c_void,
    malloc: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut u8>,
    calloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut u8>,
    realloc: Option<unsafe extern "C" fn(*mut c_void, *mut u8, usize) -> *mut u8>,
    free: Option<unsafe extern "C" fn(*mut c_void, *mut u8)>,
}

/// Python's `PyObjectArenaAllocator`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArenaAllocator {
    context: *mut c_void,
    alloc: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
    free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize)>,
}

/// Python's functions, by their addresses.
#[derive(Clone, Copy)]
struct PythonFunctions {
    get: u64,
    set: u64,
    /// It names what stands in the tables; there need not be one.
    name: u64,
    /// It puts debug hooks on top of what stands in the tables.
    hook: u64,
    get_arenas: u64,
    set_arenas: u64,
    /// The list of interpreters, if each of them may have a GIL of its own.
    first_interpreter: u64,
    next_interpreter: u64,
}

/// The wrappers of a process.
pub struct PythonObjects {
    /// What the environment says: 1 is yes, -1 is no.
    answer: AtomicI8,
    /// Whether it says that Python takes all objects from malloc.
    has_malloc: AtomicBool,
    /// Whether small objects are to be recorded.
    are_wanted: AtomicBool,
    /// Whether this Python has no GIL, and all objects in a mimalloc of its own.
    has_mimalloc: AtomicBool,
    /// Whether a thread looks at the tables at this moment.
    is_checked: AtomicBool,
    /// Whether somebody should look at once: nobody has since Python chose its allocators, or they
    /// were none that we know.
    is_unsettled: AtomicBool,
    /// How often somebody looked while Python's allocators were none that we know.
    unknown_checks: AtomicU32,
    /// What was found of Python is written once, before its stacks are read.
    functions: UnsafeCell<PythonFunctions>,
    /// What is wrapped, by domain. It is written before `main`, or by whoever holds the GIL.
    wrapped: [UnsafeCell<PythonAllocator>; 2],
    wrapped_arenas: UnsafeCell<ArenaAllocator>,
    /// The largest request that is small; 0 if none is.
    most: AtomicUsize,
    /// What became of them.
    state: AtomicU8,
    /// Whether the program goes on without us, so that the wrappers go.
    are_to_go: AtomicBool,
    /// How many bytes the arenas have that were made since the wrappers were there.
    arenas: AtomicU64,
}

// SAFETY: each field says who writes it.
unsafe impl Sync for PythonObjects {}

/// The small objects of this process's Python.
pub static PYTHON_OBJECTS: PythonObjects = PythonObjects {
    answer: AtomicI8::new(0),
    has_malloc: AtomicBool::new(false),
    are_wanted: AtomicBool::new(false),
    has_mimalloc: AtomicBool::new(false),
    is_checked: AtomicBool::new(false),
    is_unsettled: AtomicBool::new(false),
    unknown_checks: AtomicU32::new(0),
    functions: UnsafeCell::new(PythonFunctions::NONE),
    wrapped: [const { UnsafeCell::new(PythonAllocator::NONE) }; 2],
    wrapped_arenas: UnsafeCell::new(ArenaAllocator::NONE),
    most: AtomicUsize::new(0),
    state: AtomicU8::new(UNDECIDED),
    are_to_go: AtomicBool::new(false),
    arenas: AtomicU64::new(0),
};

/// What became of Python's small objects in a recording.
pub(super) enum SmallObjectOutcome {
    /// They are recorded, from arenas of so many bytes that were made since.
    Recorded { arenas: u64 },
    /// They are malloc's, and recorded as such.
    FromMalloc,
    /// They are missing, because nobody wants them, and with them whatever Python allocates.
    NotRequested,
    /// They are missing, because the allocators are none that we know.
    UnknownAllocator,
    /// They are missing, because nobody could look.
    Undecided,
}

/// Nobody has found out what allocators Python has.
const UNDECIDED: u8 = 0;
/// They are wrapped.
const WRAPPED: u8 = 1;
/// All of their memory is malloc's.
const NOT_NEEDED: u8 = 2;
/// They are none that we know.
const UNKNOWN_ALLOCATOR: u8 = 3;

/// So often somebody looks again at once whether they have become some that we know. While Python
/// notes its configuration, it takes the domain `raw` from malloc for a few allocations.
const MAX_UNKNOWN_CHECKS: u32 = 100;

/// The domain `raw`, as Python numbers it.
const RAW_DOMAIN: c_int = 0;
/// The domains `mem` and `obj`.
const OBJECT_DOMAINS: [c_int; 2] = [1, 2];
/// The longest request that Python takes from its arenas.
const MAX_SMALL_REQUEST: usize = 512;
/// The smallest arena. What is smaller is memory for frames, which Python takes from there, too.
const MIN_ARENA_SIZE: usize = 256 << 10;

impl ArenaAllocator {
    const NONE: Self = Self {
        context: std::ptr::null_mut(),
        alloc: None,
        free: None,
    };
}

impl PythonAllocator {
    const NONE: Self = Self {
        context: std::ptr::null_mut(),
        malloc: None,
        calloc: None,
        realloc: None,
        free: None,
    };

    fn is_ours(&self) -> bool {
        let malloc = self.malloc.map_or(0, |f| f as usize);
        MALLOC.iter().any(|ours| *ours as usize == malloc)
    }
}

thread_local! {
    /// Which block this thread gave to realloc last.
    static LAST_REALLOCATED_BLOCK: Cell<usize> = const { Cell::new(0) };
    /// Which block this thread frees at this moment, after a wrapper has recorded its end.
    static RELEASED_BLOCK: Cell<usize> = const { Cell::new(0) };
}

/// Whether a block that goes to free is one whose end a wrapper has recorded.
#[inline(always)]
pub fn is_released(block: *mut u8) -> bool {
    PYTHON_OBJECTS.were_found() && RELEASED_BLOCK.get() == block as usize
}

/// Notes that the program calls realloc for a block.
#[inline(always)]
pub fn note_realloc(old: *mut u8) {
    if PYTHON_OBJECTS.were_found() {
        LAST_REALLOCATED_BLOCK.set(old as usize);
    }
}

impl PythonObjects {
    /// Says whether small objects are to be recorded in every recording; `None` if they are in a
    /// sample only. `has_malloc` says whether Python is told to take them from malloc.
    pub fn set_answer(&self, answer: Option<bool>, has_malloc: bool) {
        self.has_malloc.store(has_malloc, Ordering::Relaxed);
        let answer = answer.map_or(0, |answer| if answer { 1 } else { -1 });
        self.answer.store(answer, Ordering::Relaxed);
        if answer > 0 {
            // Whenever a recording begins, the wrappers are there from the first object on.
            self.set_wanted(true);
        }
    }

    /// Says that a recording begins.
    pub fn begin(&self, mode: RecordingMode) {
        self.set_wanted(match self.answer.load(Ordering::Relaxed) {
            0 => mode == RecordingMode::Sampled || self.has_mimalloc(),
            answer => answer > 0,
        });
    }

    /// Makes the wrappers record, unless a recording has ended meanwhile.
    fn record_small(&self) {
        self.set_state(WRAPPED);
        if !self.are_wanted.load(Ordering::SeqCst) {
            self.most.store(0, Ordering::SeqCst);
        }
    }

    fn set_wanted(&self, are_wanted: bool) {
        self.are_wanted.store(are_wanted, Ordering::SeqCst);
        self.is_unsettled.store(are_wanted, Ordering::Relaxed);
        self.unknown_checks.store(0, Ordering::Relaxed);
        if are_wanted {
            self.are_to_go.store(false, Ordering::Relaxed);
        } else {
            self.most.store(0, Ordering::SeqCst);
        }
    }

    /// Says that the recording ends, and that the program goes on without us. The next request to a
    /// wrapper takes it away, because that needs the GIL.
    pub fn give_back(&self) {
        self.set_wanted(false);
        self.are_to_go.store(true, Ordering::Relaxed);
    }

    /// Puts back what is wrapped, if the program is to go on without us. Hooks that stand on top
    /// stay until somebody takes them away.
    ///
    /// # Safety
    /// This thread holds a GIL.
    #[cold]
    unsafe fn unwrap(&'static self) {
        if self.are_wanted.load(Ordering::Relaxed) || !self.are_to_go.load(Ordering::Relaxed) {
            return;
        }
        if self.has_mimalloc() {
            return;
        }
        // SAFETY: they are not written any more.
        let Some((get, set)) = functions_of(unsafe { *self.functions.get() }) else {
            return;
        };
        let mut are_back = true;
        for (domain, wrapped) in OBJECT_DOMAINS.iter().zip(&self.wrapped) {
            let mut found = PythonAllocator::NONE;
            // SAFETY: as they are declared. What is behind a wrapper stays where it finds it.
            unsafe {
                get(*domain, &raw mut found);
                if found.is_ours() {
                    set(*domain, wrapped.get());
                } else {
                    are_back &= !is_on_ours(&found);
                }
            }
        }
        if are_back {
            self.are_to_go.store(false, Ordering::Relaxed);
            self.set_state(UNDECIDED);
        }
    }

    /// Whether nobody needs to look at once.
    #[inline(always)]
    pub(super) fn is_settled(&self) -> bool {
        !self.is_unsettled.load(Ordering::Relaxed)
    }

    /// What became of small objects. `None` if they are not wanted.
    pub(super) fn small_object_outcome(&self) -> Option<SmallObjectOutcome> {
        if !self.are_wanted.load(Ordering::Relaxed) {
            if self.has_mimalloc() {
                return Some(SmallObjectOutcome::NotRequested);
            }
            let has_malloc = self.has_malloc.load(Ordering::Relaxed);
            return has_malloc.then_some(SmallObjectOutcome::FromMalloc);
        }
        match self.state.load(Ordering::Relaxed) {
            NOT_NEEDED => Some(SmallObjectOutcome::FromMalloc),
            WRAPPED => Some(SmallObjectOutcome::Recorded {
                arenas: self.arenas.load(Ordering::Relaxed),
            }),
            UNKNOWN_ALLOCATOR => Some(SmallObjectOutcome::UnknownAllocator),
            _ => Some(SmallObjectOutcome::Undecided),
        }
    }

    /// Whether Python's allocators are or were wrapped. Programs without Python look no further.
    #[inline(always)]
    fn were_found(&self) -> bool {
        self.state.load(Ordering::Relaxed) != UNDECIDED
    }

    fn set_state(&self, state: u8) {
        let most = match (state, self.has_mimalloc()) {
            (WRAPPED, false) => MAX_SMALL_REQUEST,
            (WRAPPED, true) => usize::MAX,
            _ => 0,
        };
        self.most.store(most, Ordering::Relaxed);
        self.state.store(state, Ordering::Relaxed);
    }

    /// Whether this Python has all objects in a mimalloc of its own.
    #[inline(always)]
    pub(super) fn has_mimalloc(&self) -> bool {
        self.has_mimalloc.load(Ordering::Relaxed)
    }

    /// Notes a Python's functions. It is called once, before its stacks are read.
    pub(super) fn note_functions<M: Memory>(&self, memory: M, object: LoadedObject, has_gil: bool) {
        self.has_mimalloc.store(!has_gil, Ordering::Relaxed);
        let is_open = self.answer.load(Ordering::Relaxed) == 0;
        if !has_gil && is_open {
            self.set_wanted(true);
        }
        let address = |name: &str| {
            object
                .symbol(memory, name)
                .map_or(0, |symbol| symbol.address)
        };
        let has_own_gils = address("Py_NewInterpreterFromConfig") != 0;
        let if_own_gils = |name: &str| if has_own_gils { address(name) } else { 0 };
        let functions = PythonFunctions {
            get: address("PyMem_GetAllocator"),
            set: address("PyMem_SetAllocator"),
            name: address("_PyMem_GetCurrentAllocatorName"),
            hook: address("PyMem_SetupDebugHooks"),
            get_arenas: address("PyObject_GetArenaAllocator"),
            set_arenas: address("PyObject_SetArenaAllocator"),
            first_interpreter: if_own_gils("PyInterpreterState_Head"),
            next_interpreter: if_own_gils("PyInterpreterState_Next"),
        };
        // SAFETY: nobody reads them yet.
        unsafe { *self.functions.get() = functions };
        // An earlier Python may be gone, with its wrappers.
        self.set_state(UNDECIDED);
        let are_wanted = self.are_wanted.load(Ordering::Relaxed);
        self.is_unsettled.store(are_wanted, Ordering::Relaxed);
    }

    /// Looks whether the wrappers are where they should be, and puts them there. `is_configured`
    /// says whether Python has chosen its allocators: before that it has its own.
    ///
    /// # Safety
    /// This thread holds the GIL, or there are no other threads yet, or there is no GIL.
    pub(super) unsafe fn check_wrappers(&'static self, is_configured: bool) {
        if !self.are_wanted.load(Ordering::Relaxed) {
            return;
        }
        if self.has_mimalloc() && self.is_checked.swap(true, Ordering::Acquire) {
            return;
        }
        // SAFETY: the caller's promise; without a GIL this is the one thread that looks.
        unsafe { self.check_wrappers_alone(is_configured) };
        self.is_checked.store(false, Ordering::Release);
    }

    /// As [`check_wrappers`](Self::check_wrappers).
    ///
    /// # Safety
    /// As there, and no other thread is here.
    unsafe fn check_wrappers_alone(&'static self, is_configured: bool) {
        if is_configured {
            self.is_unsettled.store(false, Ordering::Relaxed);
        }
        // SAFETY: they are not written any more.
        let functions = unsafe { *self.functions.get() };
        let Some((get, set)) = functions_of(functions) else {
            return;
        };
        type AllocatorNameFn = unsafe extern "C" fn() -> *const c_char;
        let mut found = [PythonAllocator::NONE; 2];
        for (domain, found) in OBJECT_DOMAINS.iter().zip(&mut found) {
            // SAFETY: as it is declared.
            unsafe { get(*domain, found) };
        }
        let is_below = |found: &PythonAllocator| found.is_ours() || is_on_ours(found);
        if found.iter().all(is_below) {
            // They may have slept since a recording ended.
            let state = self.state.load(Ordering::Relaxed);
            if !matches!(state, UNKNOWN_ALLOCATOR | NOT_NEEDED) {
                self.record_small();
            }
            return;
        }
        let name = match functions.name {
            _ if !is_configured => Some(c"pymalloc"),
            0 => None,
            // SAFETY: as it is declared. What it returns is a text that stays, or null.
            name => unsafe {
                let name = std::mem::transmute::<u64, AllocatorNameFn>(name)();
                (!name.is_null()).then(|| CStr::from_ptr(name))
            },
        };
        let has_hooks = match name.map(CStr::to_bytes) {
            Some(b"pymalloc") => false,
            Some(b"mimalloc") if self.has_mimalloc() => false,
            Some(b"pymalloc_debug") if functions.hook != 0 => true,
            Some(b"malloc" | b"malloc_debug") => {
                self.set_state(NOT_NEEDED);
                return;
            }
            // Somebody's allocators, or hooks that are not on top of ours.
            _ => {
                self.set_state(UNKNOWN_ALLOCATOR);
                let looks = self.unknown_checks.fetch_add(1, Ordering::Relaxed);
                let may_change = looks < MAX_UNKNOWN_CHECKS;
                self.is_unsettled.store(may_change, Ordering::Relaxed);
                return;
            }
        };
        if has_hooks && functions.has_other_interpreters() {
            // They may be calling these hooks, with a GIL of their own.
            self.set_state(UNKNOWN_ALLOCATOR);
            return;
        }
        if has_hooks {
            // What debug hooks stand on comes behind a letter in what they are given.
            for found in &mut found {
                // SAFETY: these are Python's own hooks, of a version that declares them so.
                *found = unsafe { found.context.byte_add(8).cast::<PythonAllocator>().read() };
            }
        }
        let mut raw = PythonAllocator::NONE;
        // SAFETY: as it is declared.
        unsafe { get(RAW_DOMAIN, &raw mut raw) };
        let malloc_of = |of: &PythonAllocator| of.malloc.map(|f| f as usize);
        if found
            .iter()
            .any(|found| malloc_of(found) == malloc_of(&raw))
        {
            // A Python that was built without arenas.
            self.set_state(NOT_NEEDED);
            return;
        }
        for (i, (domain, found)) in OBJECT_DOMAINS.iter().zip(found).enumerate() {
            let wrapped = &self.wrapped[i];
            let ours = PythonAllocator {
                context: wrapped.get().cast(),
                malloc: Some(MALLOC[i]),
                calloc: Some(CALLOC[i]),
                realloc: Some(REALLOC[i]),
                free: Some(FREE[i]),
            };
            // SAFETY: what is wrapped is there before anybody calls a wrapper. An interpreter with
            // a GIL of its own may call one with another's context, which no wrapper looks at, and
            // pymalloc does not either.
            unsafe {
                if !found.is_ours() {
                    *wrapped.get() = found;
                }
                set(*domain, &raw const ours);
            }
        }
        if has_hooks {
            type SetupDebugHooksFn = unsafe extern "C" fn();
            // SAFETY: as it is declared.
            unsafe { std::mem::transmute::<u64, SetupDebugHooksFn>(functions.hook)() };
        }
        self.record_small();
        // What mimalloc maps comes from nowhere else.
        if !self.has_mimalloc() {
            // SAFETY: as above.
            unsafe { self.wrap_arenas(functions) };
        }
    }

    /// Wraps what arenas come from, which is taken out of what else the program maps.
    ///
    /// # Safety
    /// See [`check_wrappers`](Self::check_wrappers).
    unsafe fn wrap_arenas(&'static self, functions: PythonFunctions) {
        type GetArenaAllocatorFn = unsafe extern "C" fn(*mut ArenaAllocator);
        type SetArenaAllocatorFn = unsafe extern "C" fn(*const ArenaAllocator);
        if functions.get_arenas == 0 || functions.set_arenas == 0 {
            return;
        }
        let mut found = ArenaAllocator::NONE;
        // SAFETY: they are Python's functions, as it declares them.
        unsafe {
            std::mem::transmute::<u64, GetArenaAllocatorFn>(functions.get_arenas)(&raw mut found);
            if found.alloc.map(|f| f as usize) == Some(arena_alloc as *const () as usize) {
                return;
            }
            *self.wrapped_arenas.get() = found;
            let ours = ArenaAllocator {
                context: std::ptr::null_mut(),
                alloc: Some(arena_alloc),
                free: Some(arena_free),
            };
            std::mem::transmute::<u64, SetArenaAllocatorFn>(functions.set_arenas)(&raw const ours);
        }
    }
}

impl PythonFunctions {
    const NONE: Self = Self {
        get: 0,
        set: 0,
        name: 0,
        hook: 0,
        get_arenas: 0,
        set_arenas: 0,
        first_interpreter: 0,
        next_interpreter: 0,
    };

    /// Whether there are interpreters besides the first one, each with a GIL of its own.
    fn has_other_interpreters(&self) -> bool {
        type FirstInterpreterFn = unsafe extern "C" fn() -> *mut c_void;
        type NextInterpreterFn = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
        if self.first_interpreter == 0 || self.next_interpreter == 0 {
            return false;
        }
        // SAFETY: they are Python's functions, as it declares them.
        unsafe {
            let first = std::mem::transmute::<u64, FirstInterpreterFn>(self.first_interpreter)();
            let next = std::mem::transmute::<u64, NextInterpreterFn>(self.next_interpreter);
            !first.is_null() && !next(first).is_null()
        }
    }
}

type GetAllocatorFn = unsafe extern "C" fn(c_int, *mut PythonAllocator);
type SetAllocatorFn = unsafe extern "C" fn(c_int, *const PythonAllocator);

/// What reads and what writes the tables of allocators, if there is both.
fn functions_of(functions: PythonFunctions) -> Option<(GetAllocatorFn, SetAllocatorFn)> {
    if functions.get == 0 || functions.set == 0 {
        return None;
    }
    // SAFETY: they are Python's functions, as it declares them.
    unsafe {
        Some((
            std::mem::transmute::<u64, GetAllocatorFn>(functions.get),
            std::mem::transmute::<u64, SetAllocatorFn>(functions.set),
        ))
    }
}

/// Whether hooks call our wrappers: what they are given has the allocator underneath in its first
/// words, as tracemalloc's and those of debug builds have. That may be another hook.
fn is_on_ours(found: &PythonAllocator) -> bool {
    /// What hooks are given begins with the allocator, or with a letter and the allocator.
    const ALLOCATOR_OFFSETS: [u64; 2] = [0, 1];
    const MAX_CONTEXT_WORDS: u64 = 8;
    let failed = Cell::new(false);
    let memory = KernelMemory { failed: &failed };
    let word = |of: u64, at: u64| memory.u64(of.wrapping_add(8 * at));
    let is_ours = |word: u64| MALLOC.iter().any(|ours| *ours as usize as u64 == word);
    let calls_us = |of: u64| (0..MAX_CONTEXT_WORDS).any(|at| word(of, at).is_some_and(is_ours));
    let context = found.context as u64;
    let below = || ALLOCATOR_OFFSETS.iter().filter_map(|at| word(context, *at));
    calls_us(context) || below().any(calls_us)
}
