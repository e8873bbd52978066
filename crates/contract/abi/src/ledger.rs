//! Layout of a recording's ledger in the memory of the recorded program.
//!
//! The engine has one [`LedgerHeader`] in its writable data, with the address of each table. A
//! reader outside the program searches for the header's [`LEDGER_MAGIC`], and then reads the tables
//! by the layout in this module. docs/dev/ledger.md describes the ledger.
//!
//! All numbers are in the machine's byte order.

use core::sync::atomic::{AtomicPtr, AtomicU32};

use crate::number::MappingGeneration;

/// Magic bytes at the start of a [`LedgerHeader`].
pub const LEDGER_MAGIC: [u8; 16] = *b"heapprof's books";

/// Version of this layout. A reader rejects all other versions.
pub const LEDGER_VERSION: u32 = 4;

/// Alignment of a [`LedgerHeader`], in bytes.
pub const LEDGER_ALIGN: usize = 16;

/// Address of a table in the recorded program.
pub type TableAddress = AtomicPtr<()>;

/// Addresses of all tables of a recording.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct LedgerHeader {
    /// Magic bytes: [`LEDGER_MAGIC`].
    pub magic: [u8; 16],
    /// Version of the layout: [`LEDGER_VERSION`].
    pub version: u32,
    /// Number of bytes of this header.
    pub size: u32,
    /// Address of this header itself, by which a reader recognizes copies of the header. Null if
    /// nothing was recorded.
    pub own: TableAddress,
    /// `i32`: id of the recording process.
    pub process: TableAddress,
    /// `u8`: the mode of recording: 0 nothing, 1 samples, 2 every allocation.
    pub mode: TableAddress,
    /// `u64`: mean bytes between samples; 1 if every allocation is counted.
    pub period: TableAddress,
    /// `u64`: number of the recording in this process, counted from 1.
    pub epoch: TableAddress,
    /// `i64`: beginning of the recording, in nanoseconds since 1970.
    pub started: TableAddress,
    /// `i64`: beginning of the recording, in nanoseconds of the clock `CLOCK_MONOTONIC`.
    pub since: TableAddress,
    /// [`heap`]: sums over the process.
    pub heap: TableAddress,
    /// `[u64; DROPPED_COUNT]`: numbers of events that could not be recorded, by reason.
    pub dropped: TableAddress,
    /// `u64`: address of the first [`thread`]; 0 if there is none.
    pub threads: TableAddress,
    /// `u32`: number of stacks.
    pub stacks: TableAddress,
    /// [`chunks`] of `u64`: address of each [`stack`], by its number.
    pub stack: TableAddress,
    /// `u32`: number of interpreter frames.
    pub frames: TableAddress,
    /// [`chunks`] of `u64`: address of each interpreter [`frame`], by its number.
    pub frame: TableAddress,
    /// `u32`: number of threads that have requested a name. At most [`MAX_NAMED_THREADS`] threads
    /// have a name.
    pub names: TableAddress,
    /// [`chunks`] of thread [`name`]s. The first name belongs to thread number 1.
    pub name: TableAddress,
    /// [`moments`]: history of the heap.
    pub moments: TableAddress,
    /// `i64`: time at which the heap was largest, in microseconds since the recording began.
    pub peak_at: TableAddress,
    /// `u32`: number of known mappings.
    pub mappings: TableAddress,
    /// [`chunks`] of [`LedgerMapping`]s.
    pub mapping: TableAddress,
    /// Array of the [`PART_COUNT`] parts of the table of blocks in use.
    pub parts: TableAddress,
    /// Two numbers about a part of the table of blocks in use: the part's length in bytes, and the
    /// offset, in the part, of its [`table`].
    pub part: [u32; 2],
    /// Offsets of the fields of a [`thread`], in bytes.
    pub thread: thread::ThreadOffsets,
    /// [`EventRing`](crate::log::EventRing) of the recording; null if no events are logged.
    pub log: TableAddress,
    /// `u64`: number of shadows; null if there is no table of blocks in use.
    pub shadows: TableAddress,
    /// `[u64; shadow::MAX_SHADOW_CHUNKS]`: addresses of the chunks of [`shadow`]s; 0 for a chunk
    /// that does not exist.
    pub shadow: TableAddress,
}

/// Header of a saved ledger: a file that remains when its process has ended. The process has mapped
/// the file in pieces. The file contains all data that a profile needs.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct SharedLedgerHeader {
    /// Magic bytes: [`SHARED_LEDGER_MAGIC`].
    pub magic: [u8; 16],
    /// Version of the layout: [`LEDGER_VERSION`].
    pub version: u32,
    /// Number of bytes of this header.
    pub size: u32,
    /// State of the process, as in [`process_state`].
    pub state: AtomicU32,
    /// Number of used entries of `extent`.
    pub extents: AtomicU32,
    /// 1 if the file was too small, so that some data are missing.
    pub is_full: AtomicU32,
    /// Addresses of the file's pieces.
    pub extent: [LedgerExtent; MAX_EXTENTS],
    /// Name of the process, up to a zero.
    pub program: [u8; 256],
    /// Addresses of the tables, without [`LEDGER_MAGIC`] and `own`. Single numbers and lists of
    /// chunks are copies in `values`; the copies of `heap` and `dropped` may be old. There is no
    /// table of blocks in use: `parts` is null.
    pub ledger: LedgerHeader,
    /// Copies of the single numbers and lists of chunks to which `ledger` refers.
    pub values: [u64; SHARED_VALUE_COUNT],
}

/// A piece of a saved ledger, with its address in the process.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LedgerExtent {
    /// Address at which the process has mapped the piece.
    pub address: u64,
    /// Offset of the piece in the file.
    pub offset: u64,
    /// Length of the piece in bytes.
    pub len: u64,
}

/// Maximum number of pieces of a saved ledger.
pub const MAX_EXTENTS: usize = 128;

/// Magic bytes at the start of a [`SharedLedgerHeader`].
pub const SHARED_LEDGER_MAGIC: [u8; 16] = *b"heapprof's kept\0";

/// Number of words in a [`SharedLedgerHeader`]'s `values`. Most of them are for the history.
pub const SHARED_VALUE_COUNT: usize = 3200;

/// States of a process that has a saved ledger.
pub mod process_state {
    /// State: the process is running, or it ended without writing its last profile.
    pub const NOT_ENDED: u32 = 0;
    /// State: the process has written its last profile.
    pub const HAS_ENDED: u32 = 1;
    /// State: the process has written its profile, and then became another program.
    pub const BEFORE_EXEC: u32 = 2;
}

/// The counts of one thread. The threads form a linked list, in which an ended thread remains.
pub mod thread {
    /// Offsets of a thread's fields, in bytes from its beginning.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(C)]
    pub struct ThreadOffsets {
        /// `u64`: address of the next thread; 0 for the last one.
        pub next: u32,
        /// [`chunks`](super::chunks) of [`counters`](super::counters), by number of the stack.
        pub counters: u32,
        /// [`chunks`](super::chunks) of `[u64; 2]`: objects and bytes of temporary allocations.
        pub temporary: u32,
        /// [`chunks`](super::chunks) of [`spread`](super::spread)s, if the recording is sampled.
        pub spread: u32,
        /// `[u64; SIZE_COUNT]` of allocations by size, then `[u64; SIZE_COUNT]` of frees by size.
        pub sizes: u32,
        /// Reserved; not used yet.
        pub unused: u32,
    }
}

/// An array that grows without moving. It is a list of the addresses of
/// [`MAX_CHUNKS`](chunks::MAX_CHUNKS) chunks. Chunk `k` has `FIRST_CHUNK_LEN << k` elements, and
/// its address is 0 while none of them is used. Unused elements are zero.
pub mod chunks {
    /// Maximum number of chunks of an array.
    pub const MAX_CHUNKS: usize = 24;
    /// Number of elements of the first chunk.
    pub const FIRST_CHUNK_LEN: usize = 4096;
}

/// A thread's counters of one stack: `u64`s at these offsets, in the recording's unit.
pub mod counters {
    /// Length of a stack's counters in bytes.
    pub const LEN: usize = 64;
    /// Offset of the number of allocated objects, followed by the number of their bytes.
    pub const ALLOCATED: usize = 0;
    /// Offset of the number of freed objects, followed by the number of their bytes.
    pub const FREED: usize = 16;
    /// Offset of the objects and bytes in use at the peak. They are valid if `FALL` equals the
    /// process's current number of falls from a peak.
    pub const AT_PEAK: usize = 32;
    /// Offset of the number of falls from a peak that the process had when `AT_PEAK` was written.
    pub const FALL: usize = 48;
}

/// The uncertainty of a thread's counters of one stack. An entry has a half for allocations, and
/// then a half for frees. Each half has the number of samples (`u64`), the variance of objects and
/// the variance of bytes (`f64` each).
pub mod spread {
    /// Length of one entry in bytes.
    pub const LEN: usize = 48;
}

/// Sums over all threads of the process, at these offsets. In sampled mode, bytes are in units of
/// 2^-[`BYTE_BITS`].
pub mod heap {
    /// `i64`: bytes in use. Budgets that threads have reserved in advance count as in use.
    pub const IN_USE: usize = 0;
    /// `i64`: largest number of bytes that were in use at one time.
    pub const PEAK: usize = 8;
    /// `u64`: phase of the peak: twice the number of falls from a peak, plus one while the heap
    /// rises to a new peak.
    pub const PHASE: usize = 16;
}

/// A stack. Its header is followed by its newest frames (`u64` each, newest first). Its oldest
/// frames may be stored in another stack, which has a lower number.
pub mod stack {
    /// Number of bytes before the frames.
    pub const LEN: usize = 16;
    /// `u32`: generation of the mappings in which the stack's addresses are valid.
    pub const GENERATION: usize = 0;
    /// `u16`: number of all frames of the stack.
    pub const FRAMES: usize = 4;
    /// `u16`: how many of the stack's oldest frames are stored in the stack [`BASE`].
    pub const FROM_BASE: usize = 6;
    /// `u32`: the stack in which the oldest frames are stored, by its number.
    pub const BASE: usize = 8;
    /// `u32`: the reason why there is no older frame, one of [`stack_end`](super::stack_end).
    pub const END: usize = 12;
}

/// Reasons why a stack has no older frame.
pub mod stack_end {
    /// Reason: the oldest frame is the outermost one of its thread.
    pub const OUTERMOST: u32 = 0;
    /// Reason: the file of the oldest frame has no unwind tables.
    pub const NO_TABLES: u32 = 1;
    /// Reason: the unwind tables of the file do not cover the code of the oldest frame.
    pub const NOT_COVERED: u32 = 2;
    /// Reason: the unwind tables describe how to find the caller, but no caller was found in that
    /// way.
    pub const NO_CALLER: u32 = 3;
    /// Reason: the code of the oldest frame is in no file.
    pub const NO_FILE: u32 = 4;
    /// Bits for the reason.
    pub const REASON_MASK: u32 = 0xff;
    /// Flag in addition to the reason: the reason is about the callee of the oldest frame. The
    /// oldest frame's code is in no file. The oldest frame was found by a frame pointer, which the
    /// callee may not have set.
    pub const CALLEE_FLAG: u32 = 0x100;
}

/// Kinds of the words of a stack. The four highest bits of a word are its kind. A word without a
/// kind is a return address.
pub mod word {
    /// Bits for the kind.
    pub const KIND_MASK: u64 = 0xf << 60;
    /// Kind: the number of an interpreter [`frame`](super::frame), in the lower 32 bits.
    pub const FRAME: u64 = 0x8 << 60;
    /// Kind: a label that an interpreter has set for the whole stack.
    pub const LABEL: u64 = 0x9 << 60;
    /// Kind: the number of the thread to which the stack belongs, in the lower 32 bits.
    pub const THREAD: u64 = 0xa << 60;
    /// An interpreter frame without a name, because there was no memory for the name.
    pub const UNNAMED: u64 = FRAME | u32::MAX as u64;
    /// A mark for the frames that were left out of a stack that was too deep.
    pub const CUT: u64 = 1;
}

/// An interpreter frame: `u32`s, followed by the function's name and the name of its file.
pub mod frame {
    /// Number of bytes before the texts.
    pub const LEN: usize = 16;
    /// `u32`: first line of the function.
    pub const START_LINE: usize = 0;
    /// `u32`: line at which the frame is.
    pub const LINE: usize = 4;
    /// `u32`: length of the function's name in bytes.
    pub const NAME: usize = 8;
    /// `u32`: length of the file's name in bytes.
    pub const FILE: usize = 12;
}

/// An entry with the name of a thread.
pub mod name {
    /// Length of an entry in bytes.
    pub const LEN: usize = 24;
    /// `u32`: kernel's id of the thread; 0 if it is not known.
    pub const ID: usize = 0;
    /// `u8`: 1 if the thread has ended, so that its id may belong to another thread.
    pub const IS_GONE: usize = 4;
    /// `u8`: number of forks between the first process and the thread's process.
    pub const GENERATION: usize = 5;
    /// Offset of the thread's name, up to a zero.
    pub const NAME: usize = 8;
}

/// The history of the heap.
pub mod moments {
    /// Maximum number of moments in the history.
    pub const MAX_MOMENTS: usize = 1000;
    /// `u64`: number of moments.
    pub const COUNT: usize = 0;
    /// Offset of the first moment.
    pub const FIRST_MOMENT: usize = 16;
    /// Length of a moment in bytes. A moment has the microseconds since the beginning, and the
    /// bytes and objects in use (`i64` each).
    pub const LEN: usize = 24;
}

/// A piece of a file that was mapped as code, and may still be mapped.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LedgerMapping {
    /// Address at which the piece begins.
    pub start: u64,
    /// Address at which the piece ends.
    pub end: u64,
    /// Offset in the file at which the piece begins.
    pub offset: u64,
    /// Address of the file's name.
    pub path: u64,
    /// Length of the file's name in bytes.
    pub path_len: u32,
    /// Last generation of mappings that contains this mapping.
    pub last: MappingGeneration,
    /// 1 if the path now leads to another file or to none.
    pub is_deleted: u32,
    /// Number of used bytes of `id`.
    pub id_len: u32,
    /// Build id of the file.
    pub id: [u8; 64],
}

/// A part of the table of blocks in use.
pub mod table {
    /// `u64`: address of the part's entries, of 16 bytes each. The lower 45 bits of an entry's
    /// first word are `address / 8`. Its other bits are the upper part of the block's size: the
    /// size divided by 2^32. The lower 32 bits of the second word are the number of the stack, and
    /// its upper 32 bits are the lower part of the size. Both words of an empty entry are zero.
    pub const ENTRY: usize = 0;
    /// Number of bits of an entry's first word that are for the address.
    pub const ADDRESS_BITS: u32 = 45;
    /// `u64`: capacity of the part in entries, minus one.
    pub const MASK: usize = 8;
    /// `u64`: number of blocks in the part.
    pub const BLOCKS: usize = 16;
}

/// Shadow of a region of 64 KiB in which blocks are close together. A shadow has a word for each
/// address at which a block may begin. A block is either in a shadow or in [`table`].
///
/// The first chunk has 16 shadows, the next one 32, and so on. A chunk begins with its shadows.
/// After the shadows, it has a `u64` for each shadow: the address of the shadow's region divided by
/// the region's size, or 0 while the shadow is not in use.
pub mod shadow {
    /// Number of words of a shadow.
    pub const WORDS: usize = 4096;
    /// Binary logarithm of the number of bytes for which a shadow has one word.
    pub const GRAIN_BITS: u32 = 4;
    /// Bit of a word that is set if a block begins at the word's address. The lower 32 bits are the
    /// number of the stack, and the bits between are the block's size.
    pub const PRESENT_FLAG: u64 = 1 << 63;
    /// Maximum number of chunks of shadows.
    pub const MAX_SHADOW_CHUNKS: usize = 28;
    /// Binary logarithm of the number of shadows in the first chunk.
    const FIRST_BITS: u32 = 4;

    /// Returns the number of shadows in a chunk.
    #[must_use]
    pub const fn chunk_len(chunk: usize) -> u64 {
        1 << (chunk as u32 + FIRST_BITS)
    }

    /// Returns the number of a chunk's first shadow.
    #[must_use]
    pub const fn first_shadow(chunk: usize) -> u64 {
        chunk_len(chunk) - (1 << FIRST_BITS)
    }

    /// Returns the chunk that contains the shadow with a number, and the index of the shadow in the
    /// chunk.
    #[must_use]
    pub const fn locate_shadow(number: u64) -> (usize, u64) {
        let from_one = number + (1 << FIRST_BITS);
        let bits = from_one.ilog2();
        ((bits - FIRST_BITS) as usize, from_one - (1 << bits))
    }
}

/// Number of parts into which the table of blocks in use is divided.
pub const PART_COUNT: usize = 128;

/// Number of size classes in which a thread counts objects. The first class is for objects without
/// bytes, and the second for objects of one byte. The sizes of each further class are twice as
/// large. The last class is for mappings.
pub const SIZE_COUNT: usize = 66;

/// Maximum number of threads that have a name in the ledger.
pub const MAX_NAMED_THREADS: u32 = 4096;

/// Number of fraction bits in a count of objects. In sampled mode, objects are counted in units of
/// 2^-16.
pub const OBJECT_BITS: u32 = 16;
/// Number of fraction bits in a count of bytes. In sampled mode, bytes are counted in units of
/// 2^-8.
pub const BYTE_BITS: u32 = 8;

/// Number of reasons for which events could not be recorded, each with a count.
pub const DROPPED_COUNT: usize = 7;
