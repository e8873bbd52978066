//! How an attacher outside a program talks with the library inside it: by an [`AttachLetter`] in
//! the program's memory.
//!
//! The attacher maps a region into the program: a page of code, then the letter, then a stack for
//! the thread that runs both. It writes its request into the letter, and sends a thread there. The
//! code saves the thread's state, loads the library if it is not there yet, calls the library's
//! `heapprof_letter`, and restores the thread. docs/dev/attach.md describes the whole.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Magic bytes at the start of an attachment's region.
pub const LETTER_MAGIC: [u8; 16] = *b"heapprof region\n";
/// Version of this layout. A letter of another version is refused.
pub const LETTER_VERSION: u32 = 3;
/// Number of bytes of code at the start of the region. The letter follows.
pub const CODE_LEN: usize = 4096;
/// Offset of the saved processor state, counted from the letter. The state takes as many bytes as
/// the processor needs.
pub const STATE_OFFSET: usize = 4096;
/// Length of the part of the region that stays mapped, in bytes. The stack begins behind the
/// processor state and ends here. The library's bytes lie behind that until they are loaded.
pub const REGION_LEN: usize = 384 << 10;

/// Requests of an attacher.
pub mod request {
    /// Request: begin to record.
    pub const ATTACH: u32 = 1;
    /// Request: end the recording, and leave every slot as it was.
    pub const DETACH: u32 = 2;
}

/// How far the thread that was sent has come.
pub mod progress {
    /// Progress: the thread has not arrived yet.
    pub const NOT_ARRIVED: u32 = 0;
    /// Progress: the thread has arrived.
    pub const ARRIVED: u32 = 1;
    /// Progress: the library was loaded, and reads the letter.
    pub const LOADED: u32 = 2;
    /// Progress: the library waits for the attacher to take the file of its ledger.
    pub const OFFERS_LEDGER: u32 = 3;
    /// Progress: the request is done, and the thread goes back to its own work.
    pub const DONE: u32 = 4;
}

/// Kinds of the system call in which a thread was stopped, and which it makes again.
pub mod stopped_call {
    /// Kind: no such call, or one that goes on whatever signals come.
    pub const NONE: u32 = 0;
    /// Kind: a call that a signal ends, unless the signal's handler asks for a restart
    /// (SA_RESTART).
    pub const RESTARTS: u32 = 1;
    /// Kind: a call that every signal handler ends.
    pub const ENDS: u32 = 2;
}

/// Reasons why a request failed; 0 if it succeeded.
pub mod failure {
    /// Reason: no file in memory could be made for the library.
    /// [`AttachLetter::file`](super::AttachLetter::file) is the errno, negated.
    pub const NO_FILE: u32 = 1;
    /// Reason: the library could not be written into its file.
    pub const NO_ROOM: u32 = 2;
    /// Reason: the loader refused the library. [`AttachLetter::text`](super::AttachLetter::text)
    /// has its message.
    pub const NOT_LOADED: u32 = 3;
    /// Reason: the library reads no letters of this version.
    pub const OTHER_VERSION: u32 = 4;
    /// Reason: the program has a malloc of its own, whose calls cannot be hooked.
    pub const OWN_MALLOC: u32 = 5;
    /// Reason: the library records already, because the program asked for it.
    pub const ALREADY_RECORDING: u32 = 6;
    /// Reason: no recording could be begun, because there is no memory for it or a thread is stuck
    /// in it.
    pub const NOT_BEGUN: u32 = 7;
    /// Reason: nothing in the program refers to malloc.
    pub const NO_SLOTS: u32 = 8;
    /// Reason: nothing is attached.
    pub const NOT_ATTACHED: u32 = 9;
    /// Reason: another thread of the program is changing slots or loading an object.
    pub const BUSY: u32 = 11;
    /// Reason: the program was forked from one that was attached to.
    pub const FORKED: u32 = 12;
    /// Reason: the program has sandboxed itself, so nothing more may be done in it.
    pub const SANDBOXED: u32 = 10;
}

/// Number of registers in a letter: rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15, rip, and the
/// flags, in this order.
pub const REGISTER_COUNT: usize = 18;

/// A letter from an attacher, which the thread that is sent to it answers.
#[derive(Debug)]
#[repr(C)]
pub struct AttachLetter {
    /// Version of the layout: [`LETTER_VERSION`].
    pub version: u32,
    /// Number of bytes of this letter.
    pub size: u32,
    /// Registers with which the thread goes on.
    pub registers: [AtomicU64; REGISTER_COUNT],
    /// Kind of the system call that the thread makes again: one of [`stopped_call`].
    pub stopped_call: u32,
    /// Whether the ledger may be kept in a file.
    pub may_share_ledger: u32,
    /// Mask of the signals that the thread blocks.
    pub mask: u64,
    /// Address of the loader's function `dlopen`.
    pub dlopen: u64,
    /// Address of the loader's function `dlsym`.
    pub dlsym: u64,
    /// Address of the loader's function `dlerror`.
    pub dlerror: u64,
    /// Address of libc's function `__errno_location`.
    pub errno_at: u64,
    /// Address of the library's bytes. They are unmapped once the library is loaded.
    pub library: u64,
    /// Length of the library in bytes.
    pub library_len: u64,
    /// Address of the library's function that reads the letter; 0 if the library is not loaded yet.
    pub enter: AtomicU64,
    /// How far the thread has come: one of [`progress`].
    pub progress: AtomicU32,
    /// Why the request failed: one of [`failure`], or 0.
    pub failure: AtomicU32,
    /// Descriptor of a file that is open in the program meanwhile; negative if there is none.
    pub file: AtomicI32,
    /// Id of the thread that was sent last.
    pub thread: u32,
    /// What the attacher asks for: one of [`request`].
    pub request: u32,
    /// Whether every allocation is recorded.
    pub is_exact: u32,
    /// Mean bytes between samples.
    pub period: u64,
    /// Which frames are kept of an interpreter's stack: 1 its own, 2 the native ones, 3 both.
    pub frames: u32,
    /// Whether each thread's share is kept.
    pub by_thread: u32,
    /// Whether each event goes into a log.
    pub log: u32,
    /// The thread's errno, which is restored at the end.
    pub errno: AtomicU32,
    /// Whether the attacher has taken the file.
    pub is_file_taken: AtomicU32,
    /// Number of slots that lead to the library.
    pub slots: AtomicU32,
    /// Whether the program is attached to, or was forked from a program that was.
    pub is_attached: AtomicU32,
    /// Id of the process that has attached; 0 if there is none.
    pub owner: u32,
    /// When the process that has attached began, in clock ticks since the machine started.
    pub owner_began: u64,
    /// Pid namespace in which `owner` is valid.
    pub owner_namespace: u64,
    /// A path for the loader, or the loader's message.
    pub text: [u8; 256],
}

const _: () = assert!(size_of::<AttachLetter>() <= STATE_OFFSET);

/// Start of the name by which the library is loaded. No other code has a reason to write the path
/// of an open file in this way, and the loader compares names character by character.
pub const LIBRARY_PATH_PREFIX: &str = "/proc/self/fd/././";
