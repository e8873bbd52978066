//! Why a program can't be attached to.

use std::io;

/// Why a program can't be attached to, or left.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no such process, or it has ended.
    #[error("there is no such process")]
    NoProcess,
    /// The kernel does not let this user.
    #[error("the kernel does not let this user control it{0}")]
    NotAllowed(&'static str),
    /// It is heapprof itself.
    #[error("that is heapprof itself")]
    OwnProcess,
    /// Somebody else traces it.
    #[error("process {0} traces it, which may be a debugger, and only one can")]
    AlreadyTraced(u32),
    /// It is stopped.
    #[error("it is stopped, and would not answer; let it go on with kill -CONT first")]
    ProcessStopped,
    /// It is for another machine.
    #[error("it is a program for another kind of processor than x86-64")]
    OtherMachine,
    /// It has no loader.
    #[error(
        "it is linked statically, so nothing can be loaded into it; build it with heapprof-alloc"
    )]
    StaticallyLinked,
    /// Its loader is still at work.
    #[error("it is just starting: its loader has not loaded the C library yet; try again")]
    Starting,
    /// It has another C library.
    #[error("its C library is {0}, and libheapprof.so is for glibc")]
    OtherLibrary(&'static str),
    /// What is in it is not as it must be.
    #[error("{0} was not found in it")]
    Missing(&'static str),
    /// It has shadow stacks.
    #[error("it runs with shadow stacks, which allow nobody to come and go")]
    ShadowStack,
    /// Its system calls are filtered.
    #[error("a filter of system calls (seccomp) would end it or fail it: {0}")]
    CallsFiltered(String),
    /// Its files must be small.
    #[error(
        "its files may have no more than {0} bytes (RLIMIT_FSIZE), which is less than the library; \
         prlimit can change that"
    )]
    FileLimit(u64),
    /// It is recorded already.
    #[error("it is recorded already; ask heapprof about pid:{0}")]
    AlreadyRecorded(u32),
    /// Somebody has attached to it.
    #[error("process {0} is attached to it")]
    AttachedBy(u32),
    /// Another heapprof attaches to it, or leaves it, just now.
    #[error("another heapprof attaches to it or leaves it, and is still at it after {0} seconds")]
    Busy(u64),
    /// Nobody has attached to it.
    #[error("nobody is attached to it")]
    NotAttached,
    /// Another version of heapprof was there.
    #[error("another version of heapprof has left its library in it; use that one")]
    OtherVersion,
    /// It was forked from a program that was attached to.
    #[error("it was forked from a program that was attached to, and can't be recorded by itself")]
    ForkedFromAttached,
    /// It has its own malloc.
    #[error("it has a malloc of its own, whose calls can't be seen; build it with heapprof-alloc")]
    OwnMalloc,
    /// Nothing of it calls malloc.
    #[error("nothing in it calls malloc through the loader")]
    NoSlots,
    /// No recording could begin.
    #[error("no recording could begin: there is no memory for it, or it was forked from one")]
    NotBegun,
    /// It has shut itself in.
    #[error("it has shut itself in with a filter of system calls")]
    SandboxedProcess,
    /// No thread of it was safe.
    #[error("none of its threads was at a safe place within {0} seconds; try again")]
    NoSafeThread(u64),
    /// The thread did not come back in time.
    #[error("the thread that was asked is still at it after {0} seconds; it goes on by itself")]
    NoAnswer(u64),
    /// The loader in it refused the library.
    #[error("its loader refused the library: {0}")]
    NotLoaded(String),
    /// A call in it failed.
    #[error("{0} in it failed: {1}")]
    CallFailed(&'static str, io::Error),
    /// The processor has no XSAVE.
    #[error("this processor, or the system, has no XSAVE")]
    NoXsave,
    /// What the process said that prepared it.
    #[error("{0}")]
    PreparationFailed(String),
    /// The kernel said something else.
    #[error("{0}: {1}")]
    KernelError(&'static str, io::Error),
}
