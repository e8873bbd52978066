//! How somebody outside of a program and the library inside talk about an attachment: a
//! [`AttachLetter`] in the program's memory.
//!
//! Whoever attaches maps a region into the program: a page of code, then the letter, then a stack
//! for the thread that runs both. They write their wish into the letter, and send a thread there.
//! The code saves the thread, loads the library if it is not there yet, calls its
//! `heapprof_letter`, and gives the thread back. docs/dev/attach.md describes the whole.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// What the region of an attachment begins with.
pub const LETTER_MAGIC: [u8; 16] = *b"heapprof region\n";
/// The version of this layout. Another one can't be talked to.
pub const LETTER_VERSION: u32 = 3;
/// How many bytes of code the region begins with. The letter follows.
pub const CODE_LEN: usize = 4096;
/// Where the processor's state is kept, counted from the letter: as many bytes as any needs.
pub const STATE_OFFSET: usize = 4096;
/// How long the region is that stays. The stack begins behind the state and ends here. The library
/// lies behind it until it is loaded.
pub const REGION_LEN: usize = 384 << 10;

/// What is wished.
pub mod request {
    /// Begin to record.
    pub const ATTACH: u32 = 1;
    /// End the recording, and leave every slot as it was.
    pub const DETACH: u32 = 2;
}

/// How far the thread is.
pub mod progress {
    /// It has not come yet.
    pub const NOT_ARRIVED: u32 = 0;
    /// It is there.
    pub const ARRIVED: u32 = 1;
    /// The library was loaded, and reads the letter.
    pub const LOADED: u32 = 2;
    /// The library waits for somebody to take the file of its books.
    pub const OFFERS_LEDGER: u32 = 3;
    /// All is done, and the thread goes back to what it did.
    pub const DONE: u32 = 4;
}

/// Which system call a thread makes anew that was stopped in it.
pub mod stopped_call {
    /// None, or one that goes on whatever signals come.
    pub const NONE: u32 = 0;
    /// One that a signal ends unless its handler asks for the opposite (SA_RESTART).
    pub const RESTARTS: u32 = 1;
    /// One that every handler of a signal ends.
    pub const ENDS: u32 = 2;
}

/// What could not be done; 0 if all was.
pub mod failure {
    /// No file in memory could be made for the library; the file's number is the errno, negated.
    pub const NO_FILE: u32 = 1;
    /// The library could not be written into it.
    pub const NO_ROOM: u32 = 2;
    /// The loader refused it. [`AttachLetter::text`](super::AttachLetter::text) says why.
    pub const NOT_LOADED: u32 = 3;
    /// The library reads no letters of this version.
    pub const OTHER_VERSION: u32 = 4;
    /// The program has a malloc of its own, whose calls nobody sees.
    pub const OWN_MALLOC: u32 = 5;
    /// The library records already, because the program asked it to.
    pub const ALREADY_RECORDING: u32 = 6;
    /// No recording could be begun: there is no memory for it, or a thread is held up in it.
    pub const NOT_BEGUN: u32 = 7;
    /// Nothing in the program refers to malloc.
    pub const NO_SLOTS: u32 = 8;
    /// Nothing is attached.
    pub const NOT_ATTACHED: u32 = 9;
    /// Somebody else is at it in the program.
    pub const BUSY: u32 = 11;
    /// It was forked from a program that was attached to.
    pub const FORKED: u32 = 12;
    /// The program has shut itself in, so that nothing more may be done in it.
    pub const SANDBOXED: u32 = 10;
}

/// How many registers a letter holds: rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15, rip, and
/// the flags, in this order.
pub const REGISTER_COUNT: usize = 18;

/// A letter. It is written before the thread comes, and answered by it.
#[derive(Debug)]
#[repr(C)]
pub struct AttachLetter {
    /// [`LETTER_VERSION`].
    pub version: u32,
    /// How many bytes this has.
    pub size: u32,
    /// How the thread goes on.
    pub registers: [AtomicU64; REGISTER_COUNT],
    /// Which system call the thread makes anew: one of [`stopped_call`].
    pub stopped_call: u32,
    /// Whether the books may be kept in a file.
    pub may_share_ledger: u32,
    /// The signals that the thread blocks.
    pub mask: u64,
    /// The loader's function `dlopen`.
    pub dlopen: u64,
    /// The loader's function `dlsym`.
    pub dlsym: u64,
    /// The loader's function `dlerror`.
    pub dlerror: u64,
    /// libc's function `__errno_location`.
    pub errno_at: u64,
    /// Where the library's bytes are. They are unmapped once they are loaded.
    pub library: u64,
    /// How many bytes the library has.
    pub library_len: u64,
    /// The library's function that reads this; 0 if it is not loaded yet.
    pub enter: AtomicU64,
    /// How far the thread is: one of [`progress`].
    pub progress: AtomicU32,
    /// What could not be done: one of [`failure`], or 0.
    pub failure: AtomicU32,
    /// The number of a file that is open in the program meanwhile; negative if there is none.
    pub file: AtomicI32,
    /// The thread that was sent here last.
    pub thread: u32,
    /// One of [`request`].
    pub request: u32,
    /// Whether every allocation is recorded.
    pub is_exact: u32,
    /// Mean bytes between samples.
    pub period: u64,
    /// Which frames are kept of interpreters: 1 theirs, 2 the native ones, 3 both.
    pub frames: u32,
    /// Whether each thread's share is kept.
    pub by_thread: u32,
    /// Whether each event goes into a log.
    pub log: u32,
    /// The thread's errno, which it gets back at the end.
    pub errno: AtomicU32,
    /// Set by whoever has taken the file.
    pub is_file_taken: AtomicU32,
    /// How many slots lead to the library.
    pub slots: AtomicU32,
    /// Whether any do.
    pub is_attached: AtomicU32,
    /// The number of the process that has attached; 0 if there is none.
    pub owner: u32,
    /// When that process began, in ticks since the machine did.
    pub owner_began: u64,
    /// The namespace that its number is of.
    pub owner_namespace: u64,
    /// A path for the loader, or what it said.
    pub text: [u8; 256],
}

const _: () = assert!(size_of::<AttachLetter>() <= STATE_OFFSET);

/// What the name begins with by which the library is loaded. Nobody else has a reason to write the
/// path of an open file so, and the loader tells names apart by their letters.
pub const LIBRARY_PATH_PREFIX: &str = "/proc/self/fd/././";
