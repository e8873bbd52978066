//! Names of functions that reports cut from stacks. In profiles that consist of addresses, the
//! allocator, the lock or the profiler itself is at the leaf of every stack.
//!
//! The names are regular expressions for `drop_frames` and `keep_frames`, matched against whole
//! function names. The lists are from pprof, jeprof and Go.

use heapprof_profile::{ALLOCATOR_REGEX, Profile};

/// Functions that pprof cuts from any text heap profile.
const PPROF_FRAMES: &[&str] = &[
    r"calloc",
    r"cfree",
    r"malloc",
    r"free",
    r"memalign",
    r"do_memalign",
    r"(__)?posix_memalign",
    r"pvalloc",
    r"valloc",
    r"realloc",
    r"tcmalloc::.*",
    r"tc_calloc",
    r"tc_cfree",
    r"tc_malloc",
    r"tc_free",
    r"tc_memalign",
    r"tc_posix_memalign",
    r"tc_pvalloc",
    r"tc_valloc",
    r"tc_realloc",
    r"tc_new",
    r"tc_delete",
    r"tc_newarray",
    r"tc_deletearray",
    r"tc_new_nothrow",
    r"tc_newarray_nothrow",
    r"malloc_zone_malloc",
    r"malloc_zone_calloc",
    r"malloc_zone_valloc",
    r"malloc_zone_realloc",
    r"malloc_zone_memalign",
    r"malloc_zone_free",
    r"runtime\..*",
    r"BaseArena::.*",
    r"(::)?do_malloc_no_errno",
    r"(::)?do_malloc_pages",
    r"(::)?do_malloc",
    r"DoSampledAllocation",
    r"MallocedMemBlock::MallocedMemBlock",
    r"_M_allocate",
    r"__builtin_(vec_)?delete",
    r"__builtin_(vec_)?new",
    r"__gnu_cxx::new_allocator::allocate",
    r"__libc_malloc",
    r"__malloc_alloc_template::allocate",
    r"allocate",
    r"cpp_alloc",
    r"operator new(\[\])?",
    r"simple_alloc::allocate",
];

/// Functions of Go's runtime that may be in the middle of a stack. Their frames are kept although
/// their names match `runtime\..*`.
const KEPT_FRAMES: &[&str] = &[
    r"runtime\.panic",
    r"runtime\.reflectcall",
    r"runtime\.call[0-9]*",
];

/// Functions that jeprof cuts in addition to [`PPROF_FRAMES`], with the prefixes that jemalloc can
/// be built with.
const JEMALLOC_FRAMES: &[&str] = &[
    r"(_?rjem_|_rjem_je_|je_|_)?(malloc|calloc|realloc|reallocarray|free|memalign|posix_memalign|aligned_alloc|pvalloc|valloc)",
    r"(_?rjem_|je_)?([mrxsn]?allocx|sdallocx(_noflags)?)",
    r"(_rjem_)?(je_)?prof_.*",
    r"(void\* )?newImpl",
    r"fallback_impl",
];

/// Functions that pprof cuts from text profiles of contention: those that unlock, and those that
/// record the delay.
const LOCK_FRAMES: &[&str] = &[
    r"RecordLockProfileData",
    r"(base::)?RecordLockProfileData.*",
    r"(base::)?SubmitMutexProfileData.*",
    r"(base::)?SubmitSpinLockProfileData.*",
    r"(base::Mutex::)?AwaitCommon.*",
    r"(base::Mutex::)?Unlock.*",
    r"(base::Mutex::)?UnlockSlow.*",
    r"(base::Mutex::)?ReaderUnlock.*",
    r"(base::MutexLock::)?~MutexLock.*",
    r"(Mutex::)?AwaitCommon.*",
    r"(Mutex::)?Unlock.*",
    r"(Mutex::)?UnlockSlow.*",
    r"(Mutex::)?ReaderUnlock.*",
    r"(MutexLock::)?~MutexLock.*",
    r"(SpinLock::)?Unlock.*",
    r"(SpinLock::)?SlowUnlock.*",
    r"(SpinLockHolder::)?~SpinLockHolder.*",
];

/// Functions of the signal handler that samples the processor. pprof cuts them from every profile
/// that is neither of memory nor of contention.
const SAMPLER_FRAMES: &[&str] = &[
    r"ProfileData::Add",
    r"ProfileData::prof_handler",
    r"CpuProfiler::prof_handler",
    r"__pthread_sighandler",
    r"__restore",
];

/// Adds pprof's expression for contention profiles to a profile.
pub(crate) fn add_lock_frames(profile: &mut Profile) {
    profile.drop_frames = profile.strings.intern(&LOCK_FRAMES.join("|"));
}

/// Adds pprof's expression for profiles of processor time and of threads to a profile.
pub(crate) fn add_sampler_frames(profile: &mut Profile) {
    profile.drop_frames = profile.strings.intern(&SAMPLER_FRAMES.join("|"));
}

/// Adds pprof's expressions for heap profiles to a profile.
pub(crate) fn add_pprof_frames(profile: &mut Profile) {
    profile.drop_frames = profile.strings.intern(&PPROF_FRAMES.join("|"));
    profile.keep_frames = profile.strings.intern(&KEPT_FRAMES.join("|"));
}

/// Adds pprof's and jemalloc's expressions to a profile.
pub(crate) fn add_jemalloc_frames(profile: &mut Profile) {
    add_pprof_frames(profile);
    let all = [PPROF_FRAMES, JEMALLOC_FRAMES].concat();
    profile.drop_frames = profile.strings.intern(&all.join("|"));
}

/// Adds to a profile the expression for the allocator functions that tracers show in stacks.
pub(crate) fn add_tracer_frames(profile: &mut Profile) {
    profile.drop_frames = profile.strings.intern(ALLOCATOR_REGEX);
}
