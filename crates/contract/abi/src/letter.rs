//! The protocol between an attacher outside a program and the library inside it: an
//! [`AttachLetter`] in the program's memory.
//!
//! The attacher maps a region into the program: a page of code, then the letter, then a stack. It
//! writes its request into the letter, and diverts a thread of the program to the code. The code
//! saves the thread's state, loads the library if necessary, calls the library's `heapprof_letter`,
//! and restores the thread. docs/dev/attach.md describes the protocol.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Magic bytes at the start of an attachment's region.
pub const LETTER_MAGIC: [u8; 16] = *b"heapprof region\n";
/// Version of this layout. A letter of any other version is refused.
pub const LETTER_VERSION: u32 = 5;
/// Number of bytes of code at the start of the region. The letter follows.
pub const CODE_LEN: usize = 4096;
/// Offset of the saved processor state from the beginning of the letter. The length of the state
/// depends on the processor.
pub const STATE_OFFSET: usize = 4096;
/// Length in bytes of the part of the region that remains mapped. The stack is between the
/// processor state and the end of this part. The library's bytes follow this part until the library
/// is loaded.
pub const REGION_LEN: usize = 384 << 10;

/// Requests of an attacher to the library.
pub mod request {
    /// Request: begin a recording.
    pub const ATTACH: u32 = 1;
    /// Request: end the recording, and restore every slot (pointer to a function).
    pub const DETACH: u32 = 2;
}

/// Progress of the diverted thread.
pub mod progress {
    /// Progress: the thread has not reached the code yet.
    pub const NOT_ARRIVED: u32 = 0;
    /// Progress: the thread has reached the code.
    pub const ARRIVED: u32 = 1;
    /// Progress: the library is loaded, and reads the letter.
    pub const LOADED: u32 = 2;
    /// Progress: the library offers the file of its ledger, and waits for the attacher to take it.
    pub const OFFERS_LEDGER: u32 = 3;
    /// Progress: the request is done, and the thread returns to its own work.
    pub const DONE: u32 = 4;
}

/// The effects of signals on a system call. The diverted thread was stopped in this call, and
/// repeats it later.
pub mod stopped_call {
    /// Effect: the thread was in no system call, or no signal ends the call.
    pub const NONE: u32 = 0;
    /// Effect: a signal ends the call, unless the signal's handler requests a restart (SA_RESTART).
    pub const RESTARTS: u32 = 1;
    /// Effect: every signal handler ends the call.
    pub const ENDS: u32 = 2;
}

/// Reasons why a request failed. The value 0 means that it succeeded.
pub mod failure {
    /// Reason: no memory file for the library could be made.
    /// [`AttachLetter::file`](super::AttachLetter::file) is the negated errno.
    pub const NO_FILE: u32 = 1;
    /// Reason: the library could not be written into its memory file.
    pub const NO_ROOM: u32 = 2;
    /// Reason: the loader refused the library. [`AttachLetter::text`](super::AttachLetter::text)
    /// has its message.
    pub const NOT_LOADED: u32 = 3;
    /// Reason: the library can't read letters of this version.
    pub const OTHER_VERSION: u32 = 4;
    /// Reason: the program has its own malloc, whose calls can't be hooked.
    pub const OWN_MALLOC: u32 = 5;
    /// Reason: the library is already recording, because the program has requested it.
    pub const ALREADY_RECORDING: u32 = 6;
    /// Reason: no recording could begin, because memory is missing, or because a thread is still in
    /// an earlier recording.
    pub const NOT_BEGUN: u32 = 7;
    /// Reason: nothing in the program refers to malloc.
    pub const NO_SLOTS: u32 = 8;
    /// Reason: no attacher is attached to the program.
    pub const NOT_ATTACHED: u32 = 9;
    /// Reason: another thread of the program is changing slots (pointers to allocation functions)
    /// or loading an object.
    pub const BUSY: u32 = 11;
    /// Reason: the program was forked from a program to which an attacher had attached.
    pub const FORKED: u32 = 12;
    /// Reason: the program has sandboxed itself, so no further system calls may be made in it.
    pub const SANDBOXED: u32 = 10;
}

/// Reasons why slots of malloc's family were changed, and not the functions' entries. The value 0
/// means that the entries have jumps.
pub mod slots_reason {
    /// Reason: another thread searches the program's objects.
    pub const BUSY: u32 = 1;
    /// Reason: a function of malloc's family can't have a jump.
    pub const NO_JUMP: u32 = 2;
    /// Reason: the attacher can't write jumps.
    pub const NOT_WANTED: u32 = 3;
}

/// Number of registers in a letter: rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15, rip, and the
/// flags, in this order.
pub const REGISTER_COUNT: usize = 18;

/// A letter from an attacher to the library. The diverted thread brings the letter to the library,
/// and the library writes the results into it.
#[derive(Debug)]
#[repr(C)]
pub struct AttachLetter {
    /// Version of the layout: [`LETTER_VERSION`].
    pub version: u32,
    /// Number of bytes of this letter.
    pub size: u32,
    /// Registers with which the thread resumes its own work.
    pub registers: [AtomicU64; REGISTER_COUNT],
    /// Effect of a signal on the system call in which the thread was stopped: one of
    /// [`stopped_call`].
    pub stopped_call: u32,
    /// Whether the library may write the ledger to a file.
    pub may_share_ledger: u32,
    /// Mask of the signals that the thread blocks.
    pub mask: u64,
    /// Mask of the signals that are blocked while the thread is diverted.
    pub blocked: u64,
    /// Address of the loader's function `dlopen`.
    pub dlopen: u64,
    /// Address of the loader's function `dlsym`.
    pub dlsym: u64,
    /// Address of the loader's function `dlerror`; 0 if there is none.
    pub dlerror: u64,
    /// Address of libc's function `__errno_location`.
    pub errno_at: u64,
    /// Address of the library's bytes. They are unmapped once the library is loaded.
    pub library: u64,
    /// Length of the library in bytes.
    pub library_len: u64,
    /// Address of the library's function that reads letters; 0 if the library is not loaded yet.
    pub enter: AtomicU64,
    /// Progress of the diverted thread: one of [`progress`].
    pub progress: AtomicU32,
    /// The reason why the request failed: one of [`failure`], or 0.
    pub failure: AtomicU32,
    /// Descriptor of a file that is open in the program during the request; negative if there is
    /// none.
    pub file: AtomicI32,
    /// Id of the thread that was diverted last.
    pub thread: u32,
    /// The attacher's request: one of [`request`].
    pub request: u32,
    /// Whether every allocation is recorded.
    pub is_exact: u32,
    /// Mean bytes between samples.
    pub period: u64,
    /// Which frames of an interpreter's stack are recorded: 1 interpreter frames, 2 native frames,
    /// 3 both.
    pub frames: u32,
    /// Whether memory is counted for each thread separately.
    pub by_thread: u32,
    /// Whether each event is written to a log.
    pub log: u32,
    /// The mode for `dlopen`.
    pub dlopen_mode: u32,
    /// The thread's errno, which is restored at the end.
    pub errno: AtomicU32,
    /// Whether the attacher has taken the file in [`file`](Self::file).
    pub is_file_taken: AtomicU32,
    /// Number of the program's slots (pointers to functions) that lead to the library.
    pub slots: AtomicU32,
    /// Whether the attacher can write jumps to the entries of functions, so that the slots of
    /// malloc's family need not change.
    pub may_write_entries: u32,
    /// Which allocators inside files get jumps, as the bits of a choice.
    pub allocators: u32,
    /// Why the slots of malloc's family lead to the library, and not jumps at the functions'
    /// entries: one of [`slots_reason`], or 0.
    pub slots_reason: AtomicU32,
    /// Number of objects that were loaded when the library planned the jumps.
    pub object_count: AtomicU32,
    /// Sum of the addresses of these objects.
    pub object_sum: AtomicU64,
    /// Address of a byte that the attacher sets to 1 if other objects are loaded when it writes
    /// the jumps.
    pub missed_at: AtomicU64,
    /// Address of the [table](crate::entry_patch) of jumps; 0 if there is none.
    pub entry_patches: AtomicU64,
    /// Address of the text with the allocators inside files that were found, a comment of a
    /// profile in each line.
    pub allocator_text: AtomicU64,
    /// Number of bytes of this text.
    pub allocator_text_len: AtomicU64,
    /// Whether an attacher has attached to the program, or to a program from which it was forked.
    pub is_attached: AtomicU32,
    /// Id of the attacher: the process that is attached to the program. 0 if there is none.
    pub owner: u32,
    /// Time at which the attacher began, in clock ticks since the machine started.
    pub owner_began: u64,
    /// Inode number of the PID namespace in which `owner` is valid.
    pub owner_namespace: u64,
    /// The path by which the loader finds the library, or the loader's error message.
    pub text: [u8; 256],
}

const _: () = assert!(size_of::<AttachLetter>() <= STATE_OFFSET);

/// Beginning of the path by which the library is loaded. The loader compares paths character by
/// character, and no other code writes the path of an open file in this way.
pub const LIBRARY_PATH_PREFIX: &str = "/proc/self/fd/././";
