//! Symbols that not every libc has, or not every version of it. The linker makes a symbol null if
//! it does not exist.

use std::arch::global_asm;
use std::ffi::{c_char, c_void};

use crate::loader;

global_asm!(
    ".weak _dl_find_object",
    ".weak __libc_single_threaded",
    ".weak _IO_list_lock",
    ".weak _IO_list_unlock",
    ".weak _IO_list_resetlock",
    ".weak gnu_get_libc_version",
    ".weak __libc_start_main",
    ".weak pthread_exit",
    ".pushsection .data.rel.ro.heapprof_weak,\"aw\",@progbits",
    ".balign 8",
    ".globl heapprof_weak",
    ".hidden heapprof_weak",
    ".type heapprof_weak,@object",
    "heapprof_weak:",
    ".quad _dl_find_object",
    ".quad __libc_single_threaded",
    ".quad _IO_list_lock",
    ".quad _IO_list_unlock",
    ".quad _IO_list_resetlock",
    ".quad gnu_get_libc_version",
    ".quad __libc_start_main",
    ".quad pthread_exit",
    ".size heapprof_weak, 64",
    ".popsection",
);

#[repr(C)]
struct WeakSymbols {
    dl_find_object: Option<unsafe extern "C" fn(*const c_void, *mut FoundObject) -> i32>,
    /// Address of the byte that [`single_threaded`] reads; null if libc has no such byte.
    single_threaded: *const u8,
    lock_streams: Option<unsafe extern "C" fn()>,
    unlock_streams: Option<unsafe extern "C" fn()>,
    reset_streams: Option<unsafe extern "C" fn()>,
    glibc_version: Option<unsafe extern "C" fn() -> *const c_char>,
    /// Address of the function that calls main.
    start_main: usize,
    /// Address of the function that ends a thread.
    exit_thread: usize,
}

unsafe extern "C" {
    #[link_name = "heapprof_weak"]
    static WEAK_SYMBOLS: WeakSymbols;
}

/// glibc's `struct dl_find_object` (2.35 and later).
#[repr(C)]
pub struct FoundObject {
    flags: u64,
    /// Address of the object's first byte.
    pub map_start: usize,
    /// Address behind the object's last byte.
    pub map_end: usize,
    /// The loader's record of the object. It is freed when the object is closed.
    pub link_map: *const LinkMap,
    /// Address of the object's `.eh_frame_hdr`.
    pub eh_frame: usize,
    reserved: [u64; 7],
}

/// The beginning of glibc's `struct link_map`.
#[repr(C)]
pub struct LinkMap {
    address: usize,
    /// The path of the object's file, which ends with a zero.
    pub name: *const u8,
}

/// Whether the program's libc is glibc. False in a static program.
pub fn is_glibc() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: defined in the assembly at the top of this file, and never written.
    let has_version = unsafe { WEAK_SYMBOLS.glibc_version.is_some() };
    // A library that lets programs for glibc run with musl has that function, too.
    has_version && !loader::is_musl()
}

/// Returns the addresses of musl's functions that call main and that end a thread; 0 if they are
/// not known. Returns `None` in a program of another libc.
pub fn musl_start_functions() -> Option<[usize; 2]> {
    // SAFETY: defined in the assembly at the top of this file, and never written.
    let functions = unsafe { [WEAK_SYMBOLS.start_main, WEAK_SYMBOLS.exit_thread] };
    loader::is_musl().then_some(functions)
}

/// Whether the program's libc is glibc or musl.
pub fn is_known_libc() -> bool {
    is_glibc() || loader::debug_structure() != 0
}

/// Whether glibc can find an object without taking the loader's lock.
pub fn has_dl_find_object() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: defined in the assembly at the top of this file, and never written.
    unsafe { WEAK_SYMBOLS.dl_find_object.is_some() }
}

/// Returns the loaded object that contains `pc`, by `_dl_find_object`.
pub fn dl_find_object(pc: usize) -> Option<FoundObject> {
    let mut found = std::mem::MaybeUninit::<FoundObject>::zeroed();
    // SAFETY: the result is plain data, zeroed and large enough; the function reads only `pc`'s
    // value.
    unsafe {
        let find = WEAK_SYMBOLS.dl_find_object?;
        (find(pc as *const c_void, found.as_mut_ptr()) == 0).then(|| found.assume_init())
    }
}

/// An action on the lock of libc's list of streams. Fork takes this lock after its handlers ran.
/// The lock counts how often its owner has taken it.
pub enum StreamLockAction {
    /// Takes the lock.
    Lock,
    /// Releases the lock.
    Unlock,
    /// Makes the lock free in a forked child, where no thread has it.
    Reset,
}

/// Applies an action to the lock of libc's list of streams. Does nothing if libc does not export
/// the function for this action.
pub fn streams(what: StreamLockAction) {
    // SAFETY: functions without arguments, called in pairs around fork by one thread.
    unsafe {
        let function = match what {
            StreamLockAction::Lock => WEAK_SYMBOLS.lock_streams,
            StreamLockAction::Unlock => WEAK_SYMBOLS.unlock_streams,
            StreamLockAction::Reset => WEAK_SYMBOLS.reset_streams,
        };
        if let Some(function) = function {
            function();
        }
    }
}

/// Whether this process has only one thread, as glibc reports (2.32 and later). False if that is
/// not certain.
///
/// The only thread makes this false itself, before it starts a second thread. So the result can't
/// become false in the middle of the engine's work.
#[inline(always)]
pub fn single_threaded() -> bool {
    if cfg!(any(miri, shuttle)) {
        return false;
    }
    // SAFETY: glibc's variable lives as long as the process. It is a byte, and the read is volatile
    // because other code writes it.
    unsafe {
        let byte = WEAK_SYMBOLS.single_threaded;
        !byte.is_null() && byte.read_volatile() != 0
    }
}
