//! Lists the functions through which programs call malloc. They are the innermost frames of a
//! recorded stack.
//!
//! A profile's `drop_frames` matches these functions, and cuts each matching frame with everything
//! that it called. So this file names only functions that run no code of the program, apart from an
//! allocator that the program supplies. For example, a container's `emplace` is not listed, because
//! it runs the constructor of an element, which may allocate memory for itself.
//!
//! pprof cuts a name at its first parenthesis before it matches the name. This parenthesis may be
//! inside a template's arguments.

/// Regular expression for malloc and its family, under the names that libraries and interceptors
/// give them, and for `operator new`.
macro_rules! mallocs {
    () => {
        r"(__GI_)?(__libc_|___?interceptor_|tc_|je_)?(malloc|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc|pvalloc|valloc)|operator new(\[\])?|_Zn[wa]m.*"
    };
}

/// Regular expression for the names that `mallocs!` matches, and for the functions through which
/// containers call malloc: C++'s allocators, and Rust's `Box`, `RawVec` and `alloc`.
macro_rules! containers {
    () => {
        concat!(
            mallocs!(),
            r"|(std|__gnu_cxx)::(__)?(new_allocator|allocator)<.*>::allocate",
            r"|(std|__gnu_cxx)::(__)?allocator_traits<std::allocator<.*> ?>::allocate",
            // These names are cut at `(__gnu_cxx::_Lock_policy)2`. The functions construct nothing
            // in the block that holds a shared pointer's counts.
            r"|(std|__gnu_cxx)::(__new_allocator|new_allocator|allocator|allocator_traits|__allocated_ptr|__allocate_guarded)",
            r"<(std::allocator<)?std::_Sp_counted_(ptr|deleter|ptr_inplace)<.*, ",
            // These classes only get memory and give it back.
            r"|std::(_Vector_base|_Deque_base)<.*",
            r"|std::(_List_base|_Fwd_list_base|_Rb_tree)<.*>::_M_get_node",
            r"|std::__detail::_Hashtable_alloc<.*>::_M_allocate_buckets",
            r"|std::(__cxx11::)?basic_string<.*>::(_M_create|_Rep::_S_create)|std::string::(_M_create|_Rep::_S_create)",
            r"|(.* )?std::__1::(__libcpp_(allocate|operator_new)|__allocate_at_least)(<.*)?",
            r"|std::__1::allocator<.*>::allocate(\[abi:.*\])?",
            r"|alloc::alloc::.*|<alloc::alloc::Global( as .*)?>::.*|__r(ust|dl|g)_(alloc|alloc_zeroed|realloc)",
            r"|alloc::raw_vec::.*|<alloc::raw_vec::.*>::.*|alloc::boxed::box_new_uninit",
            r"|(alloc::boxed::Box<.*>|<alloc::boxed::Box<(dyn )?[^ ]*>>)::(try_)?new(_uninit|_zeroed)?(_slice)?(_in)?",
        )
    };
}

/// Calls the macro `$give` with a table of functions that wrap malloc, such as `xmalloc`. Each row
/// has the names of source files, and regular expressions for the functions that they define.
#[rustfmt::skip]
macro_rules! wrappers {
    ($give:ident) => {
        $give! {
            "libc (string/strdup.c)":
                r"(__GI_)?(__)?str(n)?dup", r"wcsdup";
            "gnulib (lib/xmalloc.c), GCC and binutils (libiberty/xmalloc.c), bash and readline (xmalloc.c), sudo":
                r"(sh_)?x(i|n|z|c|2|2n|char)?(m?alloc|calloc|malloc|realloc|zalloc|nmalloc|nrealloc|palloc)(array)?",
                r"xi?mallocarray", r"xi?reallocarray", r"xi?memdup0?", r"xstrn?dup", r"xmemdupz?";
            "git (wrapper.c, mem-pool.c)":
                r"do_xmallocz?", r"xmallocz(_gently)?", r"mem_pool_(alloc|calloc|alloc_block|strdup|strndup)";
            "gawk (node.c, pma.c)":
                r"more_blocks", r"(e|pma_)(malloc|calloc|realloc|zalloc)(_real)?";
            "GCC (ggc-page.cc, vec.h)":
                r"(.* )?ggc_(internal_)?(cleared_)?(alloc|realloc)(_.*|<.*)?", r"(.* )?va_(heap|gc)::reserve.*";
            "GLib (gmem.c, gslice.c, gstrfuncs.c)":
                r"g_(try_)?(malloc|malloc0|realloc)(_n)?", r"g_aligned_alloc0?", r"g_slice_(alloc|alloc0|copy)",
                r"g_strn?dup", r"g_memdup2?";
            "redis and valkey (zmalloc.c)":
                r"z(try)?(malloc|calloc|realloc)(_num)?(_usable)?(_internal)?(_cache_aligned|_no_tcache)?",
                r"zstrdup", r"valkey_(malloc|calloc|realloc)";
            "Perl (util.c, malloc.c)":
                r"Perl_(safesys)?(malloc|calloc|realloc)";
            "CPython (Objects/obmalloc.c, Modules/_tracemalloc.c)":
                r"_?Py(Mem|Object|DataMem)_(Raw|Debug|DebugRaw)?(Malloc|Calloc|Realloc|Alloc|New|Strdup|ArenaAlloc)",
                r"_?PyMem_Raw(Strdup|Wcsdup)", r"_PyObject_Arena(Mmap|Malloc)", r"pymalloc_(alloc|realloc)",
                r"tracemalloc_(alloc|realloc|raw_alloc|raw_realloc)";
            "nginx (os/unix/ngx_alloc.c, core/ngx_palloc.c)":
                r"ngx_(alloc|calloc|memalign|palloc|pnalloc|pcalloc|pmemalign|create_pool)",
                r"ngx_palloc_(block|large|small)";
            "HotSpot (runtime/os.cpp, memory/allocation.cpp)":
                r"os::(malloc|realloc|strdup)", r"(Rea|A)llocateHeap", r"CHeapObj(Base)?<.*",
                r"resource_(re)?allocate_bytes";
            "Mozilla (memory/mozalloc, js/src)":
                r"moz_x(malloc|calloc|realloc|memalign|strn?dup|memdup)", r"moz_arena_(malloc|calloc|realloc|memalign)",
                r"js_(arena_)?(malloc|calloc|realloc)";
            "SQLite (malloc.c, mem1.c, pcache1.c)":
                r"sqlite3_?(Db)?(malloc|realloc|Malloc|Realloc)(64|Zero|Raw|RawNN|NN|OrFree)*", r"sqlite3DbStrN?Dup",
                r"sqlite3(Mem|Page|Scratch)(Malloc|Realloc)", r"mallocWithAlarm", r"pcache1Alloc",
                r"db(Malloc|Realloc)(RawFinish|Finish)";
            "FFmpeg (libavutil/mem.c)":
                r"av_(malloc|mallocz|calloc|realloc|realloc_f|reallocp|strdup|strndup|memdup)(_array)?",
                r"(av|ff)_fast_(padded_)?(malloc|mallocz|realloc)", r"av_dynarray2?_add(_nofree)?";
            "OpenSSL (crypto/mem.c, mem_sec.c)":
                r"CRYPTO_(secure_)?(malloc|zalloc|calloc|realloc|clear_realloc|aligned_alloc)(_array)?",
                r"CRYPTO_(strdup|strndup|memdup)";
            "libuv (uv-common.c)":
                r"uv__(malloc|calloc|realloc|reallocf|strn?dup)";
            "Node.js (src/util-inl.h), V8 (utils/allocation.cc, zone/)":
                r"(.* )?node::(Unchecked)?(Malloc|Calloc|Realloc)(<.*)?", r"v8::base::(Malloc|Calloc|Realloc|AlignedAlloc)",
                r"v8::internal::(Malloced::operator new|(Aligned)?AllocWithRetry|AllocAtLeastWithRetry)",
                r"v8::internal::(Zone::(New)?Expand|Zone::AsanNew|AccountingAllocator::AllocateSegment)";
            "Ruby (gc.c)":
                r"(ruby_|objspace_)x(malloc|calloc|realloc)[02]?(_body)?", r"rb_x(malloc|calloc|realloc)[_a-z0-9]*";
            "PHP (Zend/zend_alloc.c)":
                r"_(safe_)?e(malloc|calloc|realloc)2?(_[0-9]+|_large|_huge)?", r"_safe_(malloc|realloc)", r"_estrn?dup",
                r"__zend_(malloc|calloc|realloc)", r"zend_mm_(alloc|realloc)(_.*)?", r"zend_mm_chunk_alloc(_int)?",
                r"zend_strn?dup";
            "Qt (corelib/tools/qarraydata.cpp, global/qmalloc.cpp)":
                r"QArrayData::(re)?allocate.*", r"(.* )?Q(Typed)?ArrayData<.*>::(re)?allocate.*", r"q(Mal|Real)locAligned";
            "APR (memory/unix/apr_pools.c)":
                r"apr_p(c)?alloc(_debug)?", r"apr_pstrn?dup", r"apr_pmemdup", r"apr_allocator_alloc";
            "PostgreSQL (utils/mmgr)":
                r"palloc(0|_extended|_aligned)?", r"repalloc(0|_huge)?", r"AllocSet(Alloc|Realloc).*", r"pstrn?dup",
                r"MemoryContext(Alloc|AllocZero|AllocExtended|AllocHuge|Strdup).*", r"pg_(malloc|malloc0|realloc|strdup)";
            "LLVM (Support/MemAlloc.h, SmallVector.cpp, Allocator.h)":
                r"llvm::safe_(malloc|calloc|realloc)", r"llvm::allocate_buffer", r"llvm::MallocAllocator::Allocate",
                r"llvm::SmallVectorBase<.*>::(grow_pod|mallocForGrow)",
                r"llvm::BumpPtrAllocatorImpl<.*>::(Allocate|AllocateSlow|StartNewSlab)";
            "systemd (basic/alloc-util.c)":
                r"memdup(_suffix0)?(_multiply)?", r"malloc_multiply", r"greedy_realloc0?(_append)?";
            "Lua (lmem.c)":
                r"luaM_(malloc|realloc|saferealloc|growaux)_";
            "zstd (common/allocations.h)":
                r"ZSTD_custom(Malloc|Calloc)";
            "CPython 3.14 (Include/internal/pycore_object_alloc.h), and heapprof's own":
                r"_?PyObject_MallocWithType",
                r"heapprof(_providers)?::python::objects::(wrappers::)?made_by_(malloc|calloc|realloc)(::<.*>)?";
            "heapprof's own library, which has no names in a release":
                r"libheapprof\.so\+0x[0-9a-f]+";
        }
    };
}

macro_rules! as_rows {
    ($($source:literal: $($names:literal),*;)*) => {
        &[$(($source, &[$($names),*])),*]
    };
}

macro_rules! as_text {
    ($($source:literal: $($names:literal),*;)*) => {
        concat!(containers!(), $($("|", $names),*),*)
    };
}

/// Table of functions that wrap malloc, such as `xmalloc`, in well-known programs and libraries.
/// Each row has the names of source files, and regular expressions for the functions that they
/// define.
pub const ALLOCATION_WRAPPERS: &[(&str, &[&str])] = wrappers!(as_rows);

/// Regular expression for a profile's `drop_frames`. It must match a whole function name, without
/// the parameters. It covers `malloc`, `operator new` and the like, the functions through which
/// containers call them, and all [`ALLOCATION_WRAPPERS`].
pub const ALLOCATOR_REGEX: &str = wrappers!(as_text);

/// Last part of [`ALLOCATOR_REGEX`] in profiles that earlier versions of heapprof wrote. In those
/// versions, the functions of today's crate `heapprof_providers` were in the crate `heapprof`.
const EARLIER_OWN_FUNCTIONS: &str =
    r"|heapprof::python::objects::(wrappers::)?made_by_(malloc|calloc|realloc)(::<.*>)?";

/// Returns the part of a profile's `drop_frames` that follows [`ALLOCATOR_REGEX`]; `None` if
/// `drop_frames` does not begin with this expression. A shorter expression that an earlier version
/// of heapprof wrote is accepted, too.
pub fn after_allocators(drop_frames: &str) -> Option<&str> {
    let shorter = |first_new: &str, instead: &str| {
        let (earlier, _) = ALLOCATOR_REGEX.split_once(first_new)?;
        drop_frames.strip_prefix(earlier)?.strip_prefix(instead)
    };
    drop_frames
        .strip_prefix(ALLOCATOR_REGEX)
        .or_else(|| shorter("|libheapprof", ""))
        .or_else(|| shorter("|heapprof(", EARLIER_OWN_FUNCTIONS))
        .or_else(|| shorter("|_?PyObject_MallocWithType", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_earlier_versions_are_recognized() {
        let before = |first_new: &str| ALLOCATOR_REGEX.split_once(first_new).unwrap().0;
        for table in [
            ALLOCATOR_REGEX.to_string(),
            before("|libheapprof").to_string(),
            before("|heapprof(").to_string() + EARLIER_OWN_FUNCTIONS,
            before("|_?PyObject_MallocWithType").to_string(),
        ] {
            assert_eq!(after_allocators(&table), Some(""));
            assert_eq!(after_allocators(&format!("{table}|own")), Some("|own"));
        }
        assert_eq!(after_allocators("malloc|own"), None);
    }
}
