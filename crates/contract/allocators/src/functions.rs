//! The tables of functions. A row has what follows a build's prefix, and what a call does.

use crate::call::AllocatorCall::{
    self, Allocate, AllocateInto, AllocateMany, Expand, Free, Resize, ResizeInPlace, ResizeMany,
};

pub(crate) type FunctionTable = &'static [(&'static str, AllocatorCall)];

// The usual arguments, each named by those that count, in their order.
const SIZE: AllocatorCall = Allocate { size: 0 };
const ALIGN_SIZE: AllocatorCall = Allocate { size: 1 };
const COUNT_SIZE: AllocatorCall = AllocateMany { count: 0, size: 1 };
const ALIGN_COUNT_SIZE: AllocatorCall = AllocateMany { count: 1, size: 2 };
const RESULT_ALIGN_SIZE: AllocatorCall = AllocateInto { result: 0, size: 2 };
const BLOCK: AllocatorCall = Free { block: 0 };
const BLOCK_SIZE: AllocatorCall = Resize { block: 0, size: 1 };
const BLOCK_ALIGN_SIZE: AllocatorCall = Resize { block: 0, size: 2 };
const BLOCK_ALIGN_OLD_SIZE: AllocatorCall = Resize { block: 0, size: 3 };
const BLOCK_COUNT_SIZE: AllocatorCall = ResizeMany {
    block: 0,
    count: 1,
    size: 2,
};

/// malloc's family, as in glibc and musl.
pub(crate) const MALLOC: FunctionTable = &[
    ("malloc", SIZE),
    ("calloc", COUNT_SIZE),
    ("realloc", BLOCK_SIZE),
    ("reallocarray", BLOCK_COUNT_SIZE),
    ("free", BLOCK),
    ("cfree", BLOCK),
    ("free_sized", BLOCK),
    ("free_aligned_sized", BLOCK),
    ("memalign", ALIGN_SIZE),
    ("aligned_alloc", ALIGN_SIZE),
    ("posix_memalign", RESULT_ALIGN_SIZE),
    ("valloc", SIZE),
    ("pvalloc", SIZE),
];

/// The functions that jemalloc has besides malloc's family.
pub(crate) const JEMALLOC: FunctionTable = &[
    ("mallocx", SIZE),
    ("rallocx", BLOCK_SIZE),
    ("xallocx", ResizeInPlace { block: 0, size: 1 }),
    ("dallocx", BLOCK),
    ("sdallocx", BLOCK),
];

/// The functions that gperftools has under its own prefix besides malloc's family.
pub(crate) const TCMALLOC: FunctionTable = &[
    ("new", SIZE),
    ("new_nothrow", SIZE),
    ("new_aligned", SIZE),
    ("new_aligned_nothrow", SIZE),
    ("newarray", SIZE),
    ("newarray_nothrow", SIZE),
    ("newarray_aligned", SIZE),
    ("newarray_aligned_nothrow", SIZE),
    ("delete", BLOCK),
    ("delete_nothrow", BLOCK),
    ("delete_sized", BLOCK),
    ("delete_aligned", BLOCK),
    ("delete_aligned_nothrow", BLOCK),
    ("delete_sized_aligned", BLOCK),
    ("deletearray", BLOCK),
    ("deletearray_nothrow", BLOCK),
    ("deletearray_sized", BLOCK),
    ("deletearray_aligned", BLOCK),
    ("deletearray_aligned_nothrow", BLOCK),
    ("deletearray_sized_aligned", BLOCK),
];

/// mimalloc's functions for the default heap and, with one more argument, for a given one.
pub(crate) const MIMALLOC_HEAP: FunctionTable = &[
    ("malloc", SIZE),
    ("zalloc", SIZE),
    ("malloc_small", SIZE),
    ("zalloc_small", SIZE),
    ("malloc_aligned", SIZE),
    ("malloc_aligned_at", SIZE),
    ("zalloc_aligned", SIZE),
    ("zalloc_aligned_at", SIZE),
    ("alloc_new", SIZE),
    ("calloc", COUNT_SIZE),
    ("mallocn", COUNT_SIZE),
    ("calloc_aligned", COUNT_SIZE),
    ("calloc_aligned_at", COUNT_SIZE),
    ("alloc_new_n", COUNT_SIZE),
    ("realloc", BLOCK_SIZE),
    ("reallocf", BLOCK_SIZE),
    ("rezalloc", BLOCK_SIZE),
    ("realloc_aligned", BLOCK_SIZE),
    ("realloc_aligned_at", BLOCK_SIZE),
    ("rezalloc_aligned", BLOCK_SIZE),
    ("rezalloc_aligned_at", BLOCK_SIZE),
    ("reallocn", BLOCK_COUNT_SIZE),
    ("recalloc", BLOCK_COUNT_SIZE),
    ("recalloc_aligned", BLOCK_COUNT_SIZE),
    ("recalloc_aligned_at", BLOCK_COUNT_SIZE),
];

/// mimalloc's functions for the default heap alone.
pub(crate) const MIMALLOC: FunctionTable = &[
    ("valloc", SIZE),
    ("pvalloc", SIZE),
    ("new", SIZE),
    ("new_nothrow", SIZE),
    ("new_aligned", SIZE),
    ("new_aligned_nothrow", SIZE),
    ("memalign", ALIGN_SIZE),
    ("aligned_alloc", ALIGN_SIZE),
    ("posix_memalign", RESULT_ALIGN_SIZE),
    ("new_n", COUNT_SIZE),
    ("new_realloc", BLOCK_SIZE),
    ("new_reallocn", BLOCK_COUNT_SIZE),
    ("reallocarray", BLOCK_COUNT_SIZE),
    ("aligned_recalloc", BLOCK_COUNT_SIZE),
    ("aligned_offset_recalloc", BLOCK_COUNT_SIZE),
    ("expand", Expand { block: 0, size: 1 }),
    ("free", BLOCK),
    ("free_size", BLOCK),
    ("free_size_aligned", BLOCK),
    ("free_aligned", BLOCK),
    ("cfree", BLOCK),
];

/// rpmalloc's functions. Its prefix has no end of its own: `rpmalloc`, `rpfree`.
pub(crate) const RPMALLOC: FunctionTable = &[
    ("malloc", SIZE),
    ("zalloc", SIZE),
    ("calloc", COUNT_SIZE),
    ("realloc", BLOCK_SIZE),
    ("aligned_realloc", BLOCK_ALIGN_SIZE),
    ("aligned_alloc", ALIGN_SIZE),
    ("aligned_zalloc", ALIGN_SIZE),
    ("aligned_calloc", ALIGN_COUNT_SIZE),
    ("memalign", ALIGN_SIZE),
    ("posix_memalign", RESULT_ALIGN_SIZE),
    ("free", BLOCK),
];

/// The functions that snmalloc's own C interface has besides malloc's family.
pub(crate) const SNMALLOC: FunctionTable =
    &[("alloc", SIZE), ("alloc_zeroed", SIZE), ("dealloc", BLOCK)];

/// snmalloc's functions for Rust.
pub(crate) const SNMALLOC_RUST: FunctionTable = &[
    ("rust_alloc", ALIGN_SIZE),
    ("rust_alloc_zeroed", ALIGN_SIZE),
    ("rust_realloc", BLOCK_ALIGN_OLD_SIZE),
    ("rust_dealloc", BLOCK),
];

/// The operators new and delete of C++, by their names in the Itanium ABI for 64 bits.
pub(crate) const OPERATORS: FunctionTable = &[
    ("_Znwm", SIZE),
    ("_ZnwmRKSt9nothrow_t", SIZE),
    ("_ZnwmSt11align_val_t", SIZE),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", SIZE),
    ("_Znam", SIZE),
    ("_ZnamRKSt9nothrow_t", SIZE),
    ("_ZnamSt11align_val_t", SIZE),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", SIZE),
    ("_ZdlPv", BLOCK),
    ("_ZdlPvRKSt9nothrow_t", BLOCK),
    ("_ZdlPvm", BLOCK),
    ("_ZdlPvSt11align_val_t", BLOCK),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", BLOCK),
    ("_ZdlPvmSt11align_val_t", BLOCK),
    ("_ZdaPv", BLOCK),
    ("_ZdaPvRKSt9nothrow_t", BLOCK),
    ("_ZdaPvm", BLOCK),
    ("_ZdaPvSt11align_val_t", BLOCK),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", BLOCK),
    ("_ZdaPvmSt11align_val_t", BLOCK),
];
