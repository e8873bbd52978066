//! The loader's list of loaded objects, which it exports for debuggers. It is read without a lock
//! and without a call. The structures are those of `link.h`, in glibc and in musl.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

// glibc's loader exports the structure, and musl's a pointer to it. Each is null elsewhere.
std::arch::global_asm!(
    ".weak _r_debug",
    ".weak _dl_debug_addr",
    ".pushsection .data.rel.ro.heapprof_r_debug,\"aw\",@progbits",
    ".balign 8",
    ".globl heapprof_r_debug",
    ".hidden heapprof_r_debug",
    "heapprof_r_debug: .quad _r_debug",
    ".globl heapprof_dl_debug_addr",
    ".hidden heapprof_dl_debug_addr",
    "heapprof_dl_debug_addr: .quad _dl_debug_addr",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "heapprof_r_debug"]
    safe static R_DEBUG: usize;
    #[link_name = "heapprof_dl_debug_addr"]
    safe static DL_DEBUG_ADDR: usize;
}

/// Whether the program's libc is musl.
pub fn is_musl() -> bool {
    !cfg!(miri) && DL_DEBUG_ADDR != 0
}

/// Returns the address of the loader's structure `r_debug`; 0 if there is none.
pub fn debug_structure() -> usize {
    if cfg!(miri) {
        return 0;
    }
    match (R_DEBUG, DL_DEBUG_ADDR) {
        (0, 0) => 0,
        // SAFETY: musl's variable, which lives as long as the process.
        (0, at) => unsafe { (at as *const usize).read_volatile() },
        (at, _) => at,
    }
}

/// Returns the address of the first entry in the loader's list of objects; 0 if there is none.
pub fn first_map() -> usize {
    match debug_structure() {
        0 => 0,
        // SAFETY: the loader's structure.
        at => unsafe {
            (&raw const (*(at as *const DebugStructure)).first).read_volatile() as usize
        },
    }
}

/// The beginning of the loader's structure `r_debug`, and its end from version 2 on: each of
/// dlmopen's namespaces has one.
#[repr(C)]
struct DebugStructure {
    version: i32,
    first: *const ListEntry,
    notice: usize,
    state: AtomicI32,
    _loader_base: usize,
    next: AtomicPtr<DebugStructure>,
}

/// The beginning of `struct link_map`.
#[repr(C)]
struct ListEntry {
    base: usize,
    name: *const c_char,
    dynamic: usize,
    next: *const ListEntry,
}

/// An object in the loader's list.
#[derive(Clone, Copy, Debug)]
pub struct ListedObject<'a> {
    /// What is added to the addresses in the object's file.
    pub base: usize,
    /// The path of the file as the loader knows it.
    pub path: &'a CStr,
    /// Address of the object's dynamic section.
    pub dynamic: usize,
    /// Whether this is the program itself.
    pub is_program: bool,
    /// Whether this is in the namespace of the program, and not in one of dlmopen's.
    pub is_in_first_namespace: bool,
}

/// Returns the address of the function that the loader calls before and after each change of its
/// list; 0 if there is none.
pub fn notice_function() -> usize {
    match debug_structure() {
        0 => 0,
        // SAFETY: the loader's structure.
        at => unsafe { (*(at as *const DebugStructure)).notice },
    }
}

/// Returns the loader's structures, one for each namespace.
fn structures() -> impl Iterator<Item = &'static DebugStructure> {
    const VERSION_WITH_NEXT: i32 = 2;
    // SAFETY: the loader's structures, which it never frees. The last field is only read if it is
    // there.
    let structure = |at: *const DebugStructure| unsafe { at.as_ref() };
    let first = structure(debug_structure() as *const DebugStructure);
    std::iter::successors(first, move |one| match one.version {
        ..VERSION_WITH_NEXT => None,
        _ => structure(one.next.load(Ordering::Acquire)),
    })
}

/// Whether no change of the loader's list is under way at this moment.
pub fn is_consistent() -> bool {
    const CONSISTENT: i32 = 0;
    structures().all(|one| one.state.load(Ordering::Acquire) == CONSISTENT)
}

/// Calls `look` for each object in the loader's list, of all namespaces. Returns false and calls
/// nothing in the middle of a change.
///
/// # Safety
/// No other thread changes the list meanwhile: the process has one thread, or this is below a call
/// of the [function](notice_function) for changes.
pub unsafe fn for_each_object(mut look: impl FnMut(ListedObject<'_>)) -> bool {
    if !is_consistent() {
        return false;
    }
    let mut is_program = true;
    for (namespace, structure) in structures().enumerate() {
        let mut entry = structure.first;
        while !entry.is_null() {
            // SAFETY: an entry of the loader's, which stays for the caller's time, like its name.
            unsafe {
                let path = match (*entry).name.is_null() {
                    true => c"",
                    false => CStr::from_ptr((*entry).name),
                };
                look(ListedObject {
                    base: (*entry).base,
                    path,
                    dynamic: (*entry).dynamic,
                    is_program,
                    is_in_first_namespace: namespace == 0,
                });
                entry = (*entry).next;
            }
            is_program = false;
        }
    }
    true
}
