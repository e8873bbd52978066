//! Reasons why a program can't be attached to.

use std::io;

/// The reason why a program can't be attached to, or can't be detached from.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no such process, or it has ended.
    #[error("there is no such process")]
    NoProcess,
    /// The kernel does not let this user control the process.
    #[error("the kernel does not let this user control it{0}")]
    NotAllowed(&'static str),
    /// The process is heapprof itself.
    #[error("that is heapprof itself")]
    OwnProcess,
    /// Another process, which has this number, already traces the target.
    #[error("process {0}, perhaps a debugger, already traces it, and only one process can")]
    AlreadyTraced(u32),
    /// The process is stopped.
    #[error("it is stopped and would not respond; continue it with kill -CONT first")]
    ProcessStopped,
    /// The program is for another kind of processor.
    #[error("it is a program for a processor other than x86-64")]
    OtherMachine,
    /// The program is linked statically, so it has no loader.
    #[error(
        "it is linked statically, so nothing can be loaded into it; build it with heapprof-alloc"
    )]
    StaticallyLinked,
    /// The program's loader has not finished yet.
    #[error("it is just starting: its loader has not loaded the C library yet; try again")]
    Starting,
    /// The program uses a C library other than glibc and musl.
    #[error("its C library is neither glibc nor musl, and libheapprof.so needs one of them")]
    OtherLibrary,
    /// The library was built without what musl needs to load it into a running program.
    #[error(
        "this libheapprof.so can't be loaded into a running program of musl; record it from its \
         start"
    )]
    NotForMusl,
    /// A part of the program that is needed for attaching was not found.
    #[error("{0} was not found in it")]
    Missing(&'static str),
    /// The program runs with shadow stacks.
    #[error("it runs with shadow stacks, so its threads can't be diverted")]
    ShadowStack,
    /// The program's system calls are filtered.
    #[error("its system call filter (seccomp) would kill it or make heapprof's calls fail: {0}")]
    CallsFiltered(String),
    /// The program may only write files up to this size in bytes, and the library is larger.
    #[error(
        "it may write files of at most {0} bytes (RLIMIT_FSIZE), which is smaller than the \
         library; prlimit can change that"
    )]
    FileLimit(u64),
    /// The process with this number is recorded already.
    #[error("it is already being recorded; read it as pid:{0}")]
    AlreadyRecorded(u32),
    /// Another process, which has this number, is attached to the target.
    #[error("process {0} is already attached to it")]
    AttachedBy(u32),
    /// Another heapprof has been attaching to the target, or detaching from it, for this number of
    /// seconds.
    #[error(
        "another heapprof is attaching to it or detaching from it, and has not finished after {0} \
             seconds"
    )]
    Busy(u64),
    /// No process is attached to the target.
    #[error("no process is attached to it")]
    NotAttached,
    /// The program contains the library of another version of heapprof.
    #[error("another version of heapprof has left its library in it; use that version")]
    OtherVersion,
    /// The process was forked from a program to which an attacher had attached.
    #[error(
        "it was forked from a program that heapprof had attached to, and can't be recorded \
             separately"
    )]
    ForkedFromAttached,
    /// The program defines its own malloc.
    #[error("it has its own malloc, whose functions can't be hooked; build it with heapprof-alloc")]
    OwnMalloc,
    /// Nothing in the program calls malloc through the loader.
    #[error("nothing in it calls malloc through the loader")]
    NoSlots,
    /// The library could not begin a recording.
    #[error(
        "the recording could not start: there is no memory for it, or the process was forked from \
             a recorded one"
    )]
    NotBegun,
    /// The process has enabled a filter of system calls by itself.
    #[error("it has sandboxed itself with a system call filter")]
    SandboxedProcess,
    /// No thread could be diverted safely within this number of seconds.
    #[error("none of its threads reached a safe place within {0} seconds; try again")]
    NoSafeThread(u64),
    /// The code of an allocator is not what it was when its hooks were prepared.
    #[error("another tool, perhaps a debugger, has changed the code of its allocator")]
    CodeChanged,
    /// The threads could not all be stopped at once within this number of seconds.
    #[error("its threads could not all be stopped at once within {0} seconds")]
    NotAllStopped(u64),
    /// The diverted thread did not come back within this number of seconds.
    #[error("the diverted thread has not finished after {0} seconds; it will finish by itself")]
    NoAnswer(u64),
    /// The program's loader can't open files in memory, because there is no /proc for it.
    #[error(
        "there is no /proc in its root folder, and its loader could not open the library without \
         it; mount one there"
    )]
    NoProc,
    /// The program's loader refused the library; the text is the loader's reason.
    #[error("its loader refused the library: {0}")]
    NotLoaded(String),
    /// A system call in the program failed.
    #[error("{0} in it failed: {1}")]
    CallFailed(&'static str, io::Error),
    /// The processor has no XSAVE.
    #[error("this processor, or the system, has no XSAVE")]
    NoXsave,
    /// The child process that prepared the program failed with this error.
    #[error("{0}")]
    PreparationFailed(String),
    /// The kernel reported an error in the named operation.
    #[error("{0}: {1}")]
    KernelError(&'static str, io::Error),
}
