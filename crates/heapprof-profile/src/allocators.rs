//! The functions that stand between a program's code and malloc: a recorded stack ends in them.

/// malloc and its family under the names that libraries and interceptors have for them, and `operator new`.
macro_rules! mallocs {
    () => {
        r"(__GI_)?(__libc_|___?interceptor_|tc_|je_)?(malloc|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc|pvalloc|valloc)|operator new(\[\])?|_Zn[wa]m.*"
    };
}

/// A regular expression for `drop_frames`, which is matched against whole names without their parameters: `malloc`,
/// `operator new` and the like.
pub const MALLOCS: &str = mallocs!();

/// The same with what containers come to them by: C++'s allocators, Rust's `Box`, `RawVec` and `alloc`.
pub const ALLOCATORS: &str = concat!(
    mallocs!(),
    r"|(std|__gnu_cxx)::(__)?(new_allocator|allocator|allocator_traits)<.*>::allocate",
    r"|std::_Vector_base<.*>::_M_allocate",
    r"|alloc::alloc::.*|<alloc::alloc::Global( as .*)?>::.*|__r(ust|dl|g)_(alloc|alloc_zeroed|realloc)",
    r"|alloc::raw_vec::.*|<alloc::raw_vec::.*>::.*|alloc::boxed::box_new_uninit",
    r"|<?alloc::boxed::Box<.*>>?::(try_)?new(_uninit|_zeroed)?(_slice)?(_in)?",
);
