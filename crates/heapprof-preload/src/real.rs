//! The functions behind the hooks: glibc's own, or those of another allocator that comes after us.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Where each hook goes on. Written before the first allocation passes, read by the hooks'
/// assembly.
#[repr(C)]
pub struct Real {
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

// glibc's allocator by the names it has beside the ones we take (GLIBC_2.2.5), so that no lookup is
// needed before the first allocation. The table lies in the assembly's reach.
std::arch::global_asm!(
    ".pushsection .data.heapprof_real,\"aw\",@progbits",
    ".balign 64",
    ".globl heapprof_real",
    ".hidden heapprof_real",
    ".type heapprof_real,@object",
    "heapprof_real:",
    ".quad __libc_malloc",
    ".quad __libc_free",
    ".quad __libc_calloc",
    ".quad __libc_realloc",
    ".quad __libc_memalign",
    ".quad __libc_valloc",
    ".quad __libc_pvalloc",
    ".quad 0",
    ".quad 0",
    ".size heapprof_real, 72",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "heapprof_real"]
    static mut REAL: Real;
}

/// The real functions.
#[inline(always)]
pub fn real() -> &'static Real {
    // SAFETY: written only by `find`, before any other thread exists or allocation passed.
    unsafe {
        let table = &raw const REAL;
        &*table
    }
}

static FOUND: AtomicBool = AtomicBool::new(false);

/// Looks whether another allocator stands behind us, and goes on to it.
///
/// Called at the first allocation of the process, before it is passed on: memory of one allocator
/// must not be freed by another.
pub fn find() {
    if FOUND.swap(true, Ordering::AcqRel) {
        return;
    }
    let Some(malloc) = next_of_family(c"malloc") else {
        return;
    };
    if is_libc(malloc) {
        return;
    }
    /// Puts the function `name` into a slot of the table.
    macro_rules! set {
        ($real:ident, $($name:ident: $type:ty),*) => {
            $(let name = concat!(stringify!($name), "\0").as_bytes();
            let name = std::ffi::CStr::from_bytes_with_nul(name);
            if let Some(function) = name.ok().and_then(next_of_family) {
                (*$real).$name = std::mem::transmute::<*const c_void, $type>(function);
            })*
        };
    }
    type OfSize = unsafe extern "C" fn(usize) -> *mut u8;
    type OfTwo = unsafe extern "C" fn(usize, usize) -> *mut u8;
    let real = &raw mut REAL;
    // SAFETY: each symbol has the type of the function it is named after; nobody else uses the
    // table yet.
    unsafe {
        set!(real, malloc: OfSize, free: unsafe extern "C" fn(*mut u8), calloc: OfTwo,
            realloc: unsafe extern "C" fn(*mut u8, usize) -> *mut u8, memalign: OfTwo,
            valloc: OfSize, pvalloc: OfSize);
    }
    // These two are the other allocator's only if they come from the same place; glibc's call
    // glibc's malloc.
    let same = |name: &CStr| next_of_family(name).filter(|f| object(*f) == object(malloc));
    // SAFETY: as above.
    unsafe {
        (*real).posix_memalign = same(c"posix_memalign").map(|f| {
            std::mem::transmute::<
                *const c_void,
                unsafe extern "C" fn(*mut *mut u8, usize, usize) -> c_int,
            >(f)
        });
        let aligned_alloc = same(c"aligned_alloc");
        let aligned_alloc = aligned_alloc.map(|f| std::mem::transmute::<*const c_void, OfTwo>(f));
        (*real).aligned_alloc = aligned_alloc.or(Some((*real).memalign));
    }
}

/// The next definition of one of malloc's family. glibc's malloc debugging (libc_malloc_debug.so)
/// defines them by their version only, by which other libraries' are not found.
fn next_of_family(name: &CStr) -> Option<*const c_void> {
    let found = next(name).filter(|found| !is_libc(*found));
    let by_version = || {
        let versions = [c"GLIBC_2.2.5", c"GLIBC_2.16"];
        versions.into_iter().find_map(|version| {
            // SAFETY: names that end in zero.
            let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
            (!found.is_null()).then_some(found.cast_const())
        })
    };
    found.or_else(by_version).or_else(|| next(name))
}

/// The next definition of a function after ours.
pub fn next(name: &CStr) -> Option<*const c_void> {
    // SAFETY: a name that ends in zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

/// A function of libc that one of ours stands in front of.
pub struct Behind {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    is_libcs: AtomicBool,
}

/// libc's own, which newer glibcs let refuse what memalign takes.
pub static ALIGNED_ALLOC: Behind = Behind::new(c"aligned_alloc");

impl Behind {
    /// Where in it the function's address lies, for assembly; null until it was looked up.
    pub const FOUND: usize = std::mem::offset_of!(Self, found);

    /// The next function called `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
            is_libcs: AtomicBool::new(true),
        }
    }

    /// Looks it up. At the start: a forked child must not wait for the loader's lock.
    pub fn find(&self) -> *const c_void {
        let found = next(self.name).unwrap_or_default();
        self.is_libcs.store(is_libc(found), Ordering::Relaxed);
        self.found.store(found.cast_mut(), Ordering::Release);
        found
    }

    /// Where another library's stands between ours and libc's: that one.
    pub fn between(&self) -> Option<*const c_void> {
        let found = self.found.load(Ordering::Acquire).cast_const();
        // Only what the start has looked up: this may be asked before, or by what must not look.
        (!found.is_null() && !self.is_libcs.load(Ordering::Relaxed)).then_some(found)
    }

    /// The function; without it there is one to call all the same, which fails.
    pub fn or_missing(&self) -> *const c_void {
        match self.get() {
            none if none.is_null() => missing as *const c_void,
            found => found,
        }
    }

    /// The function, null when there is none.
    pub fn get(&self) -> *const c_void {
        match self.found.load(Ordering::Acquire).cast_const() {
            // Called before the library's start.
            found if found.is_null() => heapprof_collect::apart(|| self.find()),
            found => found,
        }
    }
}

/// Where a hook goes on; for assembly.
pub unsafe extern "C" fn go_on_to(behind: &Behind) -> *const c_void {
    behind.or_missing()
}

/// Stands for a function that libc does not have.
unsafe extern "C" fn missing() -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Where the object that holds `address` is loaded; 0 of none. (dladdr looks for the nearest symbol
/// too, which takes a hundred times as long.)
pub fn object(address: *const c_void) -> usize {
    heapprof_collect::object_at(address as usize).unwrap_or(0)
}

/// Whether a function is glibc's.
pub fn is_libc(address: *const c_void) -> bool {
    object(address) == object(libc::getpid as *const c_void)
}

/// Whether the program itself defines `name`, so that calls never come here.
pub fn defined_elsewhere(name: &CStr) -> bool {
    // SAFETY: a name that ends in zero.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    !first.is_null() && object(first) != object(find as *const c_void)
}
