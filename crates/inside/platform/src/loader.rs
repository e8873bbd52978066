//! The loader's list of loaded objects, which it exports for debuggers. It is read without a lock
//! and without a call. The structures are those of `link.h`, in glibc and in musl.

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
        // SAFETY: the loader's structure, whose second word is the list.
        at => unsafe { (at as *const usize).add(1).read_volatile() },
    }
}
