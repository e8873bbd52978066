//! Names of functions, and what they are taken for.

use crate::{AllocatorCall, AllocatorFamily, AllocatorRole, allocator_function, hides_allocators};

#[test]
fn functions_are_known_with_their_arguments() {
    use AllocatorCall::{Allocate, AllocateInto, AllocateMany, Free, Resize};
    use AllocatorFamily::{Jemalloc, Malloc, Mimalloc, Operators, Rpmalloc, Snmalloc, Tcmalloc};
    for (name, family, prefix, call) in [
        ("malloc", Malloc, "", Allocate { size: 0 }),
        ("aligned_alloc", Malloc, "", Allocate { size: 1 }),
        ("mallocx", Jemalloc, "", Allocate { size: 0 }),
        (
            "duckdb_je_calloc",
            Jemalloc,
            "duckdb_je_",
            AllocateMany { count: 0, size: 1 },
        ),
        ("_rjem_sdallocx", Jemalloc, "_rjem_", Free { block: 0 }),
        ("mi_malloc_aligned", Mimalloc, "mi_", Allocate { size: 0 }),
        ("mi_heap_malloc", Mimalloc, "mi_heap_", Allocate { size: 1 }),
        (
            "mi_theap_realloc",
            Mimalloc,
            "mi_theap_",
            Resize { block: 1, size: 2 },
        ),
        (
            "mi_posix_memalign",
            Mimalloc,
            "mi_",
            AllocateInto { result: 0, size: 2 },
        ),
        ("tc_new_nothrow", Tcmalloc, "tc_", Allocate { size: 0 }),
        (
            "rpaligned_realloc",
            Rpmalloc,
            "rp",
            Resize { block: 0, size: 2 },
        ),
        (
            "sn_rust_realloc",
            Snmalloc,
            "sn_",
            Resize { block: 0, size: 3 },
        ),
        ("_ZdlPvmSt11align_val_t", Operators, "", Free { block: 0 }),
    ] {
        let found = allocator_function(name).unwrap_or_else(|| panic!("{name}"));
        let answer = (found.family, found.prefix, found.call);
        assert_eq!(answer, (family, prefix, call), "{name}");
        let frees = matches!(call, Free { .. });
        assert_eq!(call.role() == AllocatorRole::Frees, frees, "{name}");
    }
}

#[test]
fn some_files_hide_their_allocators() {
    assert!(hides_allocators("PyObject_Malloc"));
    assert!(hides_allocators(
        "_ZN14heapprof_alloc9allocator8allocate17h0123456789abcdefE"
    ));
    for name in [
        "PyObject_Free",
        "heapprof_alloc",
        "_ZN4core3fmt5write17h0123456789abcdefE",
    ] {
        assert!(!hides_allocators(name), "{name}");
    }
}

#[test]
fn other_functions_are_not_known() {
    for name in [
        "",
        "rp",
        "mi_malloc_size",
        "mi_malloc_usable_size",
        "tc_malloc_size",
        "je_nallocx",
        "je_malloc.part.0",
        "mi_heap_free",
        "mi_heap_new",
        "Perl_malloc",
        "xmalloc",
        "malloc_trim",
    ] {
        assert_eq!(allocator_function(name), None, "{name}");
    }
    let longest = "_ZnwmSt11align_val_tRKSt9nothrow_t";
    assert!(allocator_function(longest).is_some());
    let longer = format!("mi_heap_{longest}{longest}");
    assert_eq!(allocator_function(&longer), None);
}
