//! The real functions behind the hooks: functions of glibc, or of another allocator in the program.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use heapprof_engine::ENGINE;
use heapprof_platform::loader;

use crate::thread_local;

mod musl;

/// Table of the functions to which the hooks jump. It is written before the first allocation is
/// passed on, and the hooks' assembly reads it.
#[repr(C)]
pub struct RealFunctions {
    pub malloc: unsafe extern "C" fn(usize) -> *mut u8,
    pub free: unsafe extern "C" fn(*mut u8),
    pub calloc: unsafe extern "C" fn(usize, usize) -> *mut u8,
    pub realloc: unsafe extern "C" fn(*mut u8, usize) -> *mut u8,
    pub memalign: unsafe extern "C" fn(usize, usize) -> *mut u8,
    pub valloc: unsafe extern "C" fn(usize) -> *mut u8,
    pub pvalloc: unsafe extern "C" fn(usize) -> *mut u8,
    pub posix_memalign: Option<unsafe extern "C" fn(*mut *mut u8, usize, usize) -> c_int>,
    pub aligned_alloc: Option<unsafe extern "C" fn(usize, usize) -> *mut u8>,
}

/// Functions that only glibc has. Each one is null with another libc.
#[repr(C)]
struct GlibcFunctions {
    /// The functions of glibc's allocator, in the order of [`RealFunctions`]. They have second
    /// names (GLIBC_2.2.5) that this library does not hook. So the first allocation needs no
    /// lookup.
    family: [usize; first::FAMILY_LEN],
    dlvsym: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void>,
    sigaction: Option<SigactionFn>,
    at_quick_exit: Option<AtQuickExitFn>,
}

/// The type of sigaction.
pub type SigactionFn =
    unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
/// The type of `__cxa_at_quick_exit`.
pub type AtQuickExitFn = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void) -> c_int;

// The loader of another libc would refuse the library if these were needed.
std::arch::global_asm!(
    ".weak __libc_malloc",
    ".weak __libc_free",
    ".weak __libc_calloc",
    ".weak __libc_realloc",
    ".weak __libc_memalign",
    ".weak __libc_valloc",
    ".weak __libc_pvalloc",
    ".weak dlvsym",
    ".weak __sigaction",
    ".weak __cxa_at_quick_exit",
    ".pushsection .data.rel.ro.heapprof_glibc,\"aw\",@progbits",
    ".balign 8",
    ".globl heapprof_glibc",
    ".hidden heapprof_glibc",
    ".type heapprof_glibc,@object",
    "heapprof_glibc:",
    ".quad __libc_malloc",
    ".quad __libc_free",
    ".quad __libc_calloc",
    ".quad __libc_realloc",
    ".quad __libc_memalign",
    ".quad __libc_valloc",
    ".quad __libc_pvalloc",
    ".quad dlvsym",
    ".quad __sigaction",
    ".quad __cxa_at_quick_exit",
    ".size heapprof_glibc, 80",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "heapprof_glibc"]
    safe static GLIBC: GlibcFunctions;
}

/// Returns glibc's `__cxa_at_quick_exit`; `None` in a program with another libc.
pub fn at_quick_exit() -> Option<AtQuickExitFn> {
    GLIBC.at_quick_exit
}

/// Returns libc's sigaction. In glibc, it is found under a name that no other library defines;
/// otherwise it is the function that the loader finds.
pub fn sigaction(behind: &HookedFunction) -> Option<SigactionFn> {
    GLIBC.sigaction.or_else(|| {
        let found = behind.get();
        // SAFETY: a function of this name has this type.
        (!found.is_null())
            .then(|| unsafe { std::mem::transmute::<*const c_void, SigactionFn>(found) })
    })
}

// The table begins with functions that find the real ones, and lies within reach of the assembly.
std::arch::global_asm!(
    ".pushsection .data.heapprof_real,\"aw\",@progbits",
    ".balign 64",
    ".globl heapprof_real",
    ".hidden heapprof_real",
    ".type heapprof_real,@object",
    "heapprof_real:",
    ".quad {malloc}",
    ".quad {free}",
    ".quad {calloc}",
    ".quad {realloc}",
    ".quad {memalign}",
    ".quad {valloc}",
    ".quad {pvalloc}",
    ".quad 0",
    ".quad 0",
    ".size heapprof_real, 72",
    ".popsection",
    malloc = sym first::malloc,
    free = sym first::free,
    calloc = sym first::calloc,
    realloc = sym first::realloc,
    memalign = sym first::memalign,
    valloc = sym first::valloc,
    pvalloc = sym first::pvalloc,
);

unsafe extern "C" {
    #[link_name = "heapprof_real"]
    static mut REAL: RealFunctions;
}

/// Returns the table of real functions.
#[inline(always)]
pub fn real() -> &'static RealFunctions {
    // SAFETY: the table's words are written before any allocation is passed on. Where several
    // threads may write them at once, they do so with an atomic exchange.
    unsafe {
        let table = &raw const REAL;
        &*table
    }
}

static HAS_SEARCHED: AtomicBool = AtomicBool::new(false);

/// Looks for another allocator in the program. If there is one, the hooks call it instead of
/// libc's.
///
/// This is called before the first allocation of the process is made, because memory of one
/// allocator must not be freed by another one.
pub fn find() {
    if HAS_SEARCHED.swap(true, Ordering::AcqRel) {
        return;
    }
    fill(next_of_family);
}

/// Replaces the initial functions that are still in the table by libc's allocator.
fn put_libc_allocator() {
    let table = (&raw mut REAL).cast::<AtomicUsize>();
    for (i, (name, first)) in first::all().into_iter().enumerate() {
        // SAFETY: the table begins with a word for each of these functions.
        let slot = unsafe { &*table.add(i) };
        if slot.load(Ordering::Relaxed) != first as usize {
            continue;
        }
        let own = match GLIBC.family[i] {
            0 => musl::function(name),
            own => own,
        };
        if own != 0 {
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            let _ = slot.compare_exchange(first as usize, own, release, relaxed);
        }
    }
}

/// Sets the real functions of the malloc family to the results of `find`, for a program that was
/// not started with the library.
pub fn set_real_functions(find: impl Fn(&CStr) -> *const c_void) {
    if HAS_SEARCHED.swap(true, Ordering::AcqRel) {
        return;
    }
    fill(|name| {
        let found = find(name);
        (!found.is_null()).then_some(found)
    });
}

/// Fills the table with the results of `find`. If `find` returns no malloc, or libc's malloc, the
/// table is filled with libc's allocator.
fn fill(find: impl Fn(&CStr) -> Option<*const c_void>) {
    put_libc_allocator();
    let Some(malloc) = find(c"malloc") else {
        return;
    };
    let is_musl = loader::is_musl();
    if is_musl && defined_elsewhere(c"malloc") && !defined_elsewhere(c"aligned_alloc") {
        musl::refuse_alignment();
    }
    if is_libc(malloc) {
        return;
    }
    // musl's own functions lead to the hooks.
    let find = |name: &CStr| find(name).filter(|found| !is_musl || !is_libc(*found));
    if is_musl && find(c"aligned_alloc").is_none() && find(c"memalign").is_none() {
        musl::refuse_alignment();
    }
    /// Stores each function in the table slot of the same name.
    macro_rules! set {
        ($real:ident, $($name:ident: $type:ty),*) => {
            $(let name = concat!(stringify!($name), "\0").as_bytes();
            let name = std::ffi::CStr::from_bytes_with_nul(name);
            if let Some(function) = name.ok().and_then(&find) {
                (*$real).$name = std::mem::transmute::<*const c_void, $type>(function);
            })*
        };
    }
    let real = &raw mut REAL;
    // SAFETY: each symbol has the type of the function it is named after; no other code uses the
    // table yet.
    unsafe {
        set!(real, malloc: SizeFn, free: unsafe extern "C" fn(*mut u8), calloc: TwoSizesFn,
            realloc: unsafe extern "C" fn(*mut u8, usize) -> *mut u8, memalign: TwoSizesFn,
            valloc: SizeFn, pvalloc: SizeFn);
    }
    // These two belong to the other allocator only if they come from the same object: glibc's would
    // call glibc's malloc.
    let same = |name: &CStr| find(name).filter(|f| object(*f) == object(malloc));
    // SAFETY: each symbol has the type of the function it is named after.
    unsafe {
        (*real).posix_memalign = same(c"posix_memalign").map(|f| {
            std::mem::transmute::<
                *const c_void,
                unsafe extern "C" fn(*mut *mut u8, usize, usize) -> c_int,
            >(f)
        });
        let aligned_alloc = same(c"aligned_alloc");
        let aligned_alloc =
            aligned_alloc.map(|f| std::mem::transmute::<*const c_void, TwoSizesFn>(f));
        (*real).aligned_alloc = aligned_alloc.or(Some((*real).memalign));
        if is_musl && let (None, Some(aligned)) = (find(c"memalign"), aligned_alloc) {
            (*real).memalign = aligned;
        }
    }
}

/// Sets the functions that allocate aligned memory.
fn set_aligned_functions(aligned: TwoSizesFn, page_aligned: SizeFn) {
    let real = &raw mut REAL;
    // SAFETY: no other code uses the table yet.
    unsafe {
        (*real).memalign = aligned;
        (*real).valloc = page_aligned;
        (*real).pvalloc = page_aligned;
        (*real).aligned_alloc = Some(aligned);
    }
}

type SizeFn = unsafe extern "C" fn(usize) -> *mut u8;
type TwoSizesFn = unsafe extern "C" fn(usize, usize) -> *mut u8;

/// Returns the definition of a function of malloc's family that the loader finds next after this
/// library's definition. The search is made with and without a version: glibc's malloc debugging
/// (libc_malloc_debug.so) defines the functions only with a version, and definitions of other
/// libraries are found only without one.
fn next_of_family(name: &CStr) -> Option<*const c_void> {
    let found = next(name).filter(|found| !is_libc(*found));
    let by_version = || {
        let dlvsym = GLIBC.dlvsym?;
        let versions = [c"GLIBC_2.2.5", c"GLIBC_2.16"];
        versions.into_iter().find_map(|version| {
            // SAFETY: names that end in zero.
            let found = unsafe { dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
            (!found.is_null()).then_some(found.cast_const())
        })
    };
    found.or_else(by_version).or_else(|| next(name))
}

/// Returns the definition of a function that the loader finds next after this library's definition.
/// If a search fails, this clears the error that the loader stores for the program.
pub fn next(name: &CStr) -> Option<*const c_void> {
    // SAFETY: a name that ends in zero.
    let find = |after| unsafe { libc::dlsym(after, name.as_ptr()) };
    let mut found = find(libc::RTLD_NEXT);
    let is_missing = found.is_null();
    if is_missing && thread_local::is_late() {
        // If musl has loaded this library into a running program, no other library is after it,
        // and none of its definitions comes first.
        found = find(libc::RTLD_DEFAULT);
    }
    if is_missing {
        // SAFETY: the function has no arguments.
        unsafe { libc::dlerror() };
    }
    (!found.is_null()).then_some(found.cast_const())
}

/// A libc function for which this library has a hook.
pub struct HookedFunction {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    is_libcs: AtomicBool,
}

/// libc's own aligned_alloc. In newer glibc versions, it rejects some arguments that memalign
/// accepts.
pub static ALIGNED_ALLOC: HookedFunction = HookedFunction::new(c"aligned_alloc");

impl HookedFunction {
    /// Offset of the function's address in this structure, for assembly. The address is null until
    /// the function is looked up.
    pub const FOUND_OFFSET: usize = std::mem::offset_of!(Self, found);

    /// Describes the function `name` without looking it up.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
            is_libcs: AtomicBool::new(true),
        }
    }

    /// Returns the name of the function.
    pub const fn name(&self) -> &'static CStr {
        self.name
    }

    /// Sets the function's address; null if there is no such function.
    pub fn set_function(&self, found: *const c_void) {
        self.is_libcs.store(is_libc(found), Ordering::Relaxed);
        self.found.store(found.cast_mut(), Ordering::Release);
    }

    /// Looks the function up. This is called when the library starts, because a forked child must
    /// not wait for the loader's lock.
    pub fn find(&self) -> *const c_void {
        let found = next(self.name).unwrap_or_default();
        self.set_function(found);
        found
    }

    /// Returns another library's definition of the function that takes precedence over libc's;
    /// `None` if there is none.
    pub fn interposed(&self) -> Option<*const c_void> {
        let found = self.found.load(Ordering::Acquire).cast_const();
        // Only what was looked up at the start counts: this may be called before the start, or by
        // code that must not look symbols up.
        (!found.is_null() && !self.is_libcs.load(Ordering::Relaxed)).then_some(found)
    }

    /// Returns the function, or a substitute that fails with ENOSYS if there is no such function.
    pub fn or_missing(&self) -> *const c_void {
        match self.get() {
            none if none.is_null() => missing as *const c_void,
            found => found,
        }
    }

    /// Returns the function; null if there is none.
    pub fn get(&self) -> *const c_void {
        match self.found.load(Ordering::Acquire).cast_const() {
            // The library has not started yet, or no library has the function: then it is looked up
            // again at each call, so this is for functions that libc has.
            found if found.is_null() => ENGINE.lifecycle().with_reentrancy_guard(|| self.find()),
            found => found,
        }
    }
}

/// Returns the function to which a hook jumps. Assembly calls this.
pub unsafe extern "C" fn go_on_to(behind: &HookedFunction) -> *const c_void {
    behind.or_missing()
}

/// Returns null after setting errno, as an allocation that fails does.
pub fn fail(errno: c_int) -> *mut u8 {
    // SAFETY: errno is this thread's own; setting it is what the function that fails here does.
    unsafe { *libc::__errno_location() = errno };
    std::ptr::null_mut()
}

/// Substitute for a missing libc function that returns an int: fails with ENOSYS.
unsafe extern "C" fn missing() -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Returns the address at which the object that contains `address` is loaded; 0 if there is none.
/// (dladdr also searches for the nearest symbol, which takes a hundred times as long.)
pub fn object(address: *const c_void) -> usize {
    ENGINE.lifecycle().object_at(address as usize).unwrap_or(0)
}

/// Whether the function at `address` is libc's.
pub fn is_libc(address: *const c_void) -> bool {
    object(address) == object(libc::getpid as *const c_void)
}

/// Whether another object, such as the program, defines `name` first, so that calls do not reach
/// this library.
pub fn defined_elsewhere(name: &CStr) -> bool {
    // SAFETY: a name that ends in zero.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    !first.is_null() && object(first) != object(find as *const c_void)
}

/// The initial functions in the table. Each of them finds libc's allocator, and calls the function
/// of the same name in it. With glibc this needs no lookup, because glibc's allocator has second
/// names.
mod first {
    use std::ffi::{CStr, c_void};

    use super::{put_libc_allocator, real};

    /// Number of functions of the malloc family in the table.
    pub const FAMILY_LEN: usize = 7;

    /// Returns the names and the initial functions, in the order of the table.
    pub fn all() -> [(&'static CStr, *const c_void); FAMILY_LEN] {
        [
            (c"malloc", malloc as *const c_void),
            (c"free", free as *const c_void),
            (c"calloc", calloc as *const c_void),
            (c"realloc", realloc as *const c_void),
            (c"memalign", memalign as *const c_void),
            (c"valloc", valloc as *const c_void),
            (c"pvalloc", pvalloc as *const c_void),
        ]
    }

    /// Stores libc's allocator in the table, and returns the table's function with this name;
    /// `None` if that is still the initial function.
    macro_rules! found {
        ($name:ident) => {{
            put_libc_allocator();
            let found = real().$name;
            (found as *const c_void != $name as *const c_void).then_some(found)
        }};
    }

    pub unsafe extern "C" fn malloc(size: usize) -> *mut u8 {
        // SAFETY: malloc's contract, passed on.
        found!(malloc).map_or(std::ptr::null_mut(), |found| unsafe { found(size) })
    }

    pub unsafe extern "C" fn free(address: *mut u8) {
        if let Some(found) = found!(free) {
            // SAFETY: free's contract, passed on.
            unsafe { found(address) }
        }
    }

    pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut u8 {
        // SAFETY: calloc's contract, passed on.
        found!(calloc).map_or(std::ptr::null_mut(), |found| unsafe { found(count, size) })
    }

    pub unsafe extern "C" fn realloc(address: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: realloc's contract, passed on.
        found!(realloc).map_or(std::ptr::null_mut(), |found| unsafe {
            found(address, size)
        })
    }

    pub unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut u8 {
        let found = found!(memalign);
        // SAFETY: memalign's contract, passed on.
        found.map_or(std::ptr::null_mut(), |found| unsafe {
            found(alignment, size)
        })
    }

    pub unsafe extern "C" fn valloc(size: usize) -> *mut u8 {
        // SAFETY: valloc's contract, passed on.
        found!(valloc).map_or(std::ptr::null_mut(), |found| unsafe { found(size) })
    }

    pub unsafe extern "C" fn pvalloc(size: usize) -> *mut u8 {
        // SAFETY: pvalloc's contract, passed on.
        found!(pvalloc).map_or(std::ptr::null_mut(), |found| unsafe { found(size) })
    }
}
