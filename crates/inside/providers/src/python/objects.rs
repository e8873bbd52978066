//! Records Python's small objects, which never reach malloc, by wrapping Python's allocators.
//!
//! Python takes requests up to 512 bytes from arenas that it maps itself. So wrappers around the
//! allocators of its domains `mem` and `obj` record these small requests, and leave larger ones to
//! malloc's hook. They are installed by `PyMem_SetAllocator`, which Python offers for this. If that
//! happens before `main`, they record every object. Python overwrites its table of allocators when
//! it is configured (`-X dev`, `PYTHONMALLOC`) and, since 3.12, when it is initialized a second
//! time. So a thread with the GIL checks the table again now and then; only such threads use these
//! domains.
//!
//! The wrapped allocator determines which requests count as small. With `PYTHONMALLOC=malloc` none
//! do, because malloc's hook records everything. Debug hooks stay in front of the wrappers, so each
//! request is longer by 24 bytes.
//!
//! A Python without the GIL allocates objects of every size from its built-in mimalloc. So the
//! wrappers record every size, unless the user wants no Python objects. Its threads must not wait
//! for Python's own lock during an allocation, because other threads may then collect garbage. So
//! only one thread at a time checks the tables, only until they are right, and the wrappers are
//! never removed.

mod wrappers;

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{
    AtomicBool, AtomicI8, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use heapprof_engine::RecordingMode;
use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::LoadedObject;

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

/// The addresses of Python's functions.
#[derive(Clone, Copy)]
struct PythonFunctions {
    get: u64,
    set: u64,
    /// Address of the function that returns the name of the current allocators; 0 if there is none.
    name: u64,
    /// Address of the function that puts debug hooks in front of the current allocators.
    hook: u64,
    get_arenas: u64,
    set_arenas: u64,
    /// Address of the function that returns the first interpreter; 0 if this Python has no
    /// interpreters with their own GIL.
    first_interpreter: u64,
    next_interpreter: u64,
}

/// State of the wrappers for Python's allocators in this process.
pub struct PythonObjects {
    /// The setting for recording Python's small objects in the environment: 1 for yes, -1 for no, 0
    /// for no setting.
    answer: AtomicI8,
    /// Whether the environment makes Python take all objects from malloc.
    has_malloc: AtomicBool,
    /// Whether small objects are to be recorded.
    are_wanted: AtomicBool,
    /// Whether this Python has no GIL, and allocates all objects from its built-in mimalloc.
    has_mimalloc: AtomicBool,
    /// Whether a thread is checking Python's tables of allocators.
    is_checked: AtomicBool,
    /// Whether a thread should check Python's tables of allocators at once: no thread has checked
    /// them since Python chose its allocators, or the allocators were unknown.
    is_unsettled: AtomicBool,
    /// Number of checks that found unknown allocators.
    unknown_checks: AtomicU32,
    /// Python's functions. They are written once, before Python's stacks are read.
    functions: UnsafeCell<PythonFunctions>,
    /// The wrapped allocators, by domain. They are written before `main`, or by a thread with the
    /// GIL.
    wrapped: [UnsafeCell<PythonAllocator>; 2],
    wrapped_arenas: UnsafeCell<ArenaAllocator>,
    /// Size of the largest request that counts as small; 0 if no request does.
    most: AtomicUsize,
    /// State of Python's allocators: `UNDECIDED`, `WRAPPED`, `NOT_NEEDED` or `UNKNOWN_ALLOCATOR`.
    state: AtomicU8,
    /// Whether the wrappers must be removed, because heapprof detaches from the program.
    are_to_go: AtomicBool,
    /// Number of bytes in arenas that were made since the allocators were wrapped.
    arenas: AtomicU64,
}

// SAFETY: each field says who writes it.
unsafe impl Sync for PythonObjects {}

/// The state of the wrappers for Python's allocators in this process.
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

/// How a recording treats Python's small objects.
pub(super) enum SmallObjectOutcome {
    /// Small objects are recorded. `arenas` is the number of bytes in the arenas that were made
    /// since the allocators were wrapped.
    Recorded { arenas: u64 },
    /// Small objects come from malloc, and are recorded as malloc's blocks.
    FromMalloc,
    /// All of Python's allocations are missing, because the user does not want them.
    NotRequested,
    /// Small objects are missing, because Python's allocators are unknown.
    UnknownAllocator,
    /// Small objects are missing, because no thread could check the allocators.
    Undecided,
}

/// State: Python's allocators are not known yet.
const UNDECIDED: u8 = 0;
/// State: Python's allocators are wrapped.
const WRAPPED: u8 = 1;
/// State: all memory of Python's allocators comes from malloc.
const NOT_NEEDED: u8 = 2;
/// State: Python's allocators are unknown, so they cannot be wrapped.
const UNKNOWN_ALLOCATOR: u8 = 3;

/// Maximum number of checks in a row that find unknown allocators. After them, no further check is
/// made. A few such checks are normal: while Python reads its configuration, it uses malloc for the
/// domain `raw` during some allocations.
const MAX_UNKNOWN_CHECKS: u32 = 100;

/// The number of the domain `raw` in Python.
const RAW_DOMAIN: c_int = 0;
/// The numbers of the domains `mem` and `obj` in Python.
const OBJECT_DOMAINS: [c_int; 2] = [1, 2];
/// Size of the largest request that Python takes from its arenas.
const MAX_SMALL_REQUEST: usize = 512;
/// Size of the smallest arena. A smaller piece is memory for frames, which Python takes from the
/// arena allocator, too.
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
    /// Address of the block that this thread last passed to realloc.
    static LAST_REALLOCATED_BLOCK: Cell<usize> = const { Cell::new(0) };
    /// Address of the block that this thread is freeing, after a wrapper has recorded its end.
    static RELEASED_BLOCK: Cell<usize> = const { Cell::new(0) };
}

/// Whether a wrapper has already recorded the end of a block that is passed to free.
#[inline(always)]
pub fn is_released(block: *mut u8) -> bool {
    PYTHON_OBJECTS.were_found() && RELEASED_BLOCK.get() == block as usize
}

/// Stores the block that the program passes to realloc.
#[inline(always)]
pub fn note_realloc(old: *mut u8) {
    if PYTHON_OBJECTS.were_found() {
        LAST_REALLOCATED_BLOCK.set(old as usize);
    }
}

impl PythonObjects {
    /// Sets whether small objects are recorded. With `None`, they are recorded only in sampled
    /// recordings, or if Python has no GIL. `has_malloc` is true if the environment makes Python
    /// take all objects from malloc.
    pub fn set_answer(&self, answer: Option<bool>, has_malloc: bool) {
        self.has_malloc.store(has_malloc, Ordering::Relaxed);
        let answer = answer.map_or(0, |answer| if answer { 1 } else { -1 });
        self.answer.store(answer, Ordering::Relaxed);
        if answer > 0 {
            // Whenever a recording begins, the wrappers are there from the first object on.
            self.set_wanted(true);
        }
    }

    /// Prepares for the beginning of a recording.
    pub fn begin(&self, mode: RecordingMode) {
        self.set_wanted(match self.answer.load(Ordering::Relaxed) {
            0 => mode == RecordingMode::Sampled || self.has_mimalloc(),
            answer => answer > 0,
        });
    }

    /// Makes the wrappers record, unless the recording has ended meanwhile.
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

    /// Prepares for the end of the recording when heapprof detaches. The wrappers are removed at
    /// the next request that reaches one of them, because their removal needs the GIL.
    pub fn give_back(&self) {
        self.set_wanted(false);
        self.are_to_go.store(true, Ordering::Relaxed);
    }

    /// Restores the wrapped allocators, if heapprof has detached from the program. If there are
    /// hooks in front of the wrappers, the wrappers stay in use until the program removes the
    /// hooks.
    ///
    /// # Safety
    /// This thread has a GIL.
    #[cold]
    unsafe fn unwrap(&'static self) {
        if self.are_wanted.load(Ordering::Relaxed) || !self.are_to_go.load(Ordering::Relaxed) {
            return;
        }
        if self.has_mimalloc() {
            return;
        }
        // SAFETY: the functions are not written any more.
        let Some((get, set)) = functions_of(unsafe { *self.functions.get() }) else {
            return;
        };
        let mut are_back = true;
        for (domain, wrapped) in OBJECT_DOMAINS.iter().zip(&self.wrapped) {
            let mut found = PythonAllocator::NONE;
            // SAFETY: they are called as Python declares them. A wrapper finds its wrapped
            // allocator where it was.
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

    /// Whether no immediate check of Python's tables of allocators is needed.
    #[inline(always)]
    pub(super) fn is_settled(&self) -> bool {
        !self.is_unsettled.load(Ordering::Relaxed)
    }

    /// Returns how the recording treats small objects; `None` if they are not wanted.
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

    /// Whether Python's allocators were examined. Programs without Python make only this check.
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

    /// Whether this Python allocates all objects from its built-in mimalloc.
    #[inline(always)]
    pub(super) fn has_mimalloc(&self) -> bool {
        self.has_mimalloc.load(Ordering::Relaxed)
    }

    /// Looks up the functions of a Python. It is called once for each Python, before its stacks are
    /// read.
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
        // SAFETY: no thread reads them yet.
        unsafe { *self.functions.get() = functions };
        // An earlier Python may be gone, with its wrappers.
        self.set_state(UNDECIDED);
        let are_wanted = self.are_wanted.load(Ordering::Relaxed);
        self.is_unsettled.store(are_wanted, Ordering::Relaxed);
    }

    /// Installs the wrappers if they are not in Python's tables. `is_configured` is true if Python
    /// has chosen its allocators; before that, it uses its default allocators.
    ///
    /// # Safety
    /// This thread has the GIL, or there are no other threads yet, or there is no GIL.
    pub(super) unsafe fn check_wrappers(&'static self, is_configured: bool) {
        if !self.are_wanted.load(Ordering::Relaxed) {
            return;
        }
        if self.has_mimalloc() && self.is_checked.swap(true, Ordering::Acquire) {
            return;
        }
        // SAFETY: the caller's promise; without a GIL this is the only thread that checks.
        unsafe { self.check_wrappers_alone(is_configured) };
        self.is_checked.store(false, Ordering::Release);
    }

    /// Does the work of [`check_wrappers`](Self::check_wrappers), in one thread at a time.
    ///
    /// # Safety
    /// This thread has the GIL, or there are no other threads yet, or there is no GIL. No other
    /// thread is in this function.
    unsafe fn check_wrappers_alone(&'static self, is_configured: bool) {
        if is_configured {
            self.is_unsettled.store(false, Ordering::Relaxed);
        }
        // SAFETY: the functions are not written any more.
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
            // The wrappers may have recorded nothing since a recording ended.
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
            // The program's own allocators, or hooks that are not on top of ours.
            _ => {
                self.set_state(UNKNOWN_ALLOCATOR);
                let looks = self.unknown_checks.fetch_add(1, Ordering::Relaxed);
                let may_change = looks < MAX_UNKNOWN_CHECKS;
                self.is_unsettled.store(may_change, Ordering::Relaxed);
                return;
            }
        };
        if has_hooks && functions.has_other_interpreters() {
            // Other interpreters may be calling these hooks, with a GIL of their own.
            self.set_state(UNKNOWN_ALLOCATOR);
            return;
        }
        if has_hooks {
            // A debug hook's context has a one-letter name, and behind it the allocator that the
            // hook stands on.
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
            // SAFETY: the wrapped allocator is written before any thread calls a wrapper. An
            // interpreter with a GIL of its own may call a wrapper with another's context, which no
            // wrapper reads, and pymalloc does not either.
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
        // mimalloc maps its memory through no other allocator.
        if !self.has_mimalloc() {
            // SAFETY: as above.
            unsafe { self.wrap_arenas(functions) };
        }
    }

    /// Wraps the arena allocator, so that its mappings are not counted as mappings of the program.
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

    /// Whether Python has more than one interpreter. Each of them may have its own GIL.
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

/// Returns the functions that read and write the tables of allocators; `None` if one is missing.
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

/// Whether an entry of Python's table calls one of the wrappers, perhaps through hooks. The context
/// of a tracemalloc hook or a debug hook begins with the allocator that the hook calls.
fn is_on_ours(found: &PythonAllocator) -> bool {
    /// Possible numbers of words before the allocator in a hook's context: none, or the one word
    /// with the letter at the beginning of a debug hook's context.
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
