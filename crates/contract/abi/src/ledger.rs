//! Layout of a recording's ledger in the memory of the recorded program.
//!
//! The engine has one [`LedgerHeader`] in its writable data, which holds the address of each
//! table. A reader outside the program searches for the header's [`LEDGER_MAGIC`], and then reads
//! the tables by the layout in this module. docs/dev/ledger.md describes the whole.
//!
//! All numbers are in the machine's byte order.

use core::sync::atomic::{AtomicPtr, AtomicU32};

use crate::number::MappingGeneration;

/// Magic bytes at the start of a [`LedgerHeader`].
pub const LEDGER_MAGIC: [u8; 16] = *b"heapprof's books";

/// Version of this layout. A reader understands no other version.
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
    /// Address of this header, which distinguishes it from a copy; null if nothing was recorded.
    pub own: TableAddress,
    /// `i32`: id of the process that records.
    pub process: TableAddress,
    /// `u8`: what is recorded now: 0 nothing, 1 a sample, 2 every allocation.
    pub mode: TableAddress,
    /// `u64`: mean bytes between samples; 1 if every allocation is counted.
    pub period: TableAddress,
    /// `u64`: number of the recording in this process, from 1.
    pub epoch: TableAddress,
    /// `i64`: when the recording began, in nanoseconds since 1970.
    pub started: TableAddress,
    /// `i64`: when the recording began, in nanoseconds on the clock `CLOCK_MONOTONIC`.
    pub since: TableAddress,
    /// [`heap`]: sums of the process.
    pub heap: TableAddress,
    /// `[u64; DROPPED_COUNT]`: counts of what could not be recorded.
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
    /// `u32`: number of threads that have asked for a name. At most [`MAX_NAMED_THREADS`] of them
    /// have one.
    pub names: TableAddress,
    /// [`chunks`] of thread [`name`]s. Number 1 is the first.
    pub name: TableAddress,
    /// [`moments`]: history of the heap.
    pub moments: TableAddress,
    /// `i64`: when the heap was largest, in microseconds since the recording began.
    pub peak_at: TableAddress,
    /// `u32`: number of known mappings.
    pub mappings: TableAddress,
    /// [`chunks`] of [`LedgerMapping`]s.
    pub mapping: TableAddress,
    /// Parts of the table of blocks in use. There are [`PART_COUNT`].
    pub parts: TableAddress,
    /// Length of a part in bytes, and offset of the part's [`table`].
    pub part: [u32; 2],
    /// Offsets of the fields of a [`thread`], in bytes.
    pub thread: thread::ThreadOffsets,
    /// [`EventRing`](crate::log::EventRing) of the recording; null if no events are logged.
    pub log: TableAddress,
    /// `u64`: number of shadows; null if the blocks in use are missing.
    pub shadows: TableAddress,
    /// `[u64; shadow::MAX_SHADOW_CHUNKS]`: addresses of the chunks of [`shadow`]s; 0 for a chunk
    /// that does not exist.
    pub shadow: TableAddress,
}

/// Header of a saved ledger: a file that outlives its process. The process has mapped the file in
/// pieces, and the file contains all that a profile is made of.
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
    /// Number of entries of `extent` that are used.
    pub extents: AtomicU32,
    /// 1 if the file had no room for something, which is then missing.
    pub is_full: AtomicU32,
    /// Addresses of the file's pieces.
    pub extent: [LedgerExtent; MAX_EXTENTS],
    /// Name of the process, up to a zero.
    pub program: [u8; 256],
    /// Addresses of the tables, without [`LEDGER_MAGIC`] and `own`. Single numbers and lists of
    /// chunks are copies, in `values`. `heap` and `dropped` may be old copies. The table of blocks
    /// in use is missing: `parts` is null.
    pub ledger: LedgerHeader,
    /// Copies of the single numbers and lists of chunks to which `ledger` refers.
    pub values: [u64; SHARED_VALUE_COUNT],
}

/// A piece of a saved ledger, with the address at which the process has mapped it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LedgerExtent {
    /// Address of the piece in the process.
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

/// Number of words of a [`SharedLedgerHeader`]'s `values`. The history takes most of them.
pub const SHARED_VALUE_COUNT: usize = 3200;

/// States of a process that has a saved ledger.
pub mod process_state {
    /// State: the process goes on, or it ended without writing its last profile.
    pub const NOT_ENDED: u32 = 0;
    /// State: the process has written its last profile.
    pub const HAS_ENDED: u32 = 1;
    /// State: the process has written its profile before it became another program.
    pub const BEFORE_EXEC: u32 = 2;
}

/// A thread's share of the sums. Threads form a list. A thread that has ended keeps its place and
/// its sums.
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

/// An array that grows without moving: the addresses of [`MAX_CHUNKS`](chunks::MAX_CHUNKS) chunks.
/// Chunk `k` has `FIRST_CHUNK_LEN << k` elements, and its address is 0 if none of them was used.
/// Elements that were not used are zero.
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
    /// Offset of the objects and bytes that were allocated.
    pub const ALLOCATED: usize = 0;
    /// Offset of the objects and bytes that were freed.
    pub const FREED: usize = 16;
    /// Offset of the objects and bytes in use at the peak. They are valid if `FALL` is the
    /// process's number of falls.
    pub const AT_PEAK: usize = 32;
    /// Offset of the number of falls from a peak, as it was when `AT_PEAK` was written.
    pub const FALL: usize = 48;
}

/// How exact a thread's sums of one stack are: the number of samples (`u64`) and the variances of
/// objects and of bytes (`f64`), first for allocations and then for frees.
pub mod spread {
    /// Length of one entry in bytes.
    pub const LEN: usize = 48;
}

/// Sums of the process at these offsets. In sampled mode, bytes are in units of 2^-[`BYTE_BITS`].
pub mod heap {
    /// `i64`: bytes in use. A budget that a thread has taken in advance counts as in use.
    pub const IN_USE: usize = 0;
    /// `i64`: largest number of bytes that were in use.
    pub const PEAK: usize = 8;
    /// `u64`: phase of the peak. It is odd while the heap rises to a new peak; half of it is the
    /// number of falls.
    pub const PHASE: usize = 16;
}

/// A stack, followed by its own frames (`u64`, newest first). Its oldest frames are those of
/// another stack with a lower number.
pub mod stack {
    /// Number of bytes before the frames.
    pub const LEN: usize = 16;
    /// `u32`: generation of the mappings in which its addresses are valid.
    pub const GENERATION: usize = 0;
    /// `u16`: number of all its frames.
    pub const FRAMES: usize = 4;
    /// `u16`: number of its oldest frames that are stored in stack `BASE`.
    pub const FROM_BASE: usize = 6;
    /// `u32`: number of the stack that holds its oldest frames.
    pub const BASE: usize = 8;
    /// `u32`: why it has no older frame, one of [`stack_end`](super::stack_end).
    pub const END: usize = 12;
}

/// Reasons why a stack has no older frame.
pub mod stack_end {
    /// Reason: the oldest frame is the outermost one of its thread.
    pub const OUTERMOST: u32 = 0;
    /// Reason: the file of the last frame has no unwind tables.
    pub const NO_TABLES: u32 = 1;
    /// Reason: the unwind tables of its file do not cover the code of the last frame.
    pub const NOT_COVERED: u32 = 2;
    /// Reason: the unwind tables say how to find the caller, and there is none.
    pub const NO_CALLER: u32 = 3;
    /// Reason: the code of the last frame is in no file.
    pub const NO_FILE: u32 = 4;
    /// Bits that hold the reason.
    pub const REASON_MASK: u32 = 0xff;
    /// Flag beside the reason: the oldest frame is not code of a file, and was found by a frame
    /// pointer that its callee may not have had. The last frame is then the callee.
    pub const CALLEE_FLAG: u32 = 0x100;
}

/// Kinds of a frame, in its four highest bits. A frame of no kind is a return address.
pub mod word {
    /// Bits that hold the kind.
    pub const KIND_MASK: u64 = 0xf << 60;
    /// Kind: the number of an interpreter [`frame`](super::frame), in the lower 32 bits.
    pub const FRAME: u64 = 0x8 << 60;
    /// Kind: a label that an interpreter gives the whole stack.
    pub const LABEL: u64 = 0x9 << 60;
    /// Kind: the number of the thread that owns the stack, in the lower 32 bits.
    pub const THREAD: u64 = 0xa << 60;
    /// An interpreter frame for whose name there was no memory.
    pub const UNNAMED: u64 = FRAME | u32::MAX as u64;
    /// Marks frames that were left out of a stack that was too deep.
    pub const CUT: u64 = 1;
}

/// An interpreter frame: `u32`s, followed by its name and the name of its file.
pub mod frame {
    /// Number of bytes before the texts.
    pub const LEN: usize = 16;
    /// `u32`: first line of the frame's function.
    pub const START_LINE: usize = 0;
    /// `u32`: line of the frame.
    pub const LINE: usize = 4;
    /// `u32`: length of the function's name in bytes.
    pub const NAME: usize = 8;
    /// `u32`: length of the file's name in bytes.
    pub const FILE: usize = 12;
}

/// Name of a thread.
pub mod name {
    /// Length of an entry in bytes.
    pub const LEN: usize = 24;
    /// `u32`: kernel's id of the thread; 0 if it is not known.
    pub const ID: usize = 0;
    /// `u8`: whether the thread has ended, so that its id may belong to another thread.
    pub const IS_GONE: usize = 4;
    /// `u8`: number of forks between the first process and the one that the thread belonged to.
    pub const GENERATION: usize = 5;
    /// Offset of the thread's name, which ends with a zero.
    pub const NAME: usize = 8;
}

/// The history of the heap.
pub mod moments {
    /// Maximum number of moments.
    pub const MAX_MOMENTS: usize = 1000;
    /// `u64`: number of moments.
    pub const COUNT: usize = 0;
    /// Offset of the first moment.
    pub const FIRST_MOMENT: usize = 16;
    /// Length of a moment in bytes. It has microseconds since the beginning, and bytes and objects
    /// in use (`i64`).
    pub const LEN: usize = 24;
}

/// A piece of a file that is or was mapped as code.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LedgerMapping {
    /// Address at which the piece begins.
    pub start: u64,
    /// Address at which the piece ends.
    pub end: u64,
    /// Offset in the file of the piece's first byte.
    pub offset: u64,
    /// Address of the file's name.
    pub path: u64,
    /// Length of the file's name in bytes.
    pub path_len: u32,
    /// Last generation of mappings that has this mapping.
    pub last: MappingGeneration,
    /// 1 if the path now leads to another file or to none.
    pub is_deleted: u32,
    /// Number of bytes of `id` that are used.
    pub id_len: u32,
    /// Build id of the file.
    pub id: [u8; 64],
}

/// A part of the table of blocks in use.
pub mod table {
    /// `u64`: address of the part's entries, of 16 bytes each. The first word has `address / 8` in
    /// its lower 45 bits, and the block's size from 2^32 on in the others. The second word has the
    /// stack in its lower 32 bits, and the rest of the size in the upper ones. An entry of two
    /// zeros is empty.
    pub const ENTRY: usize = 0;
    /// Number of bits of the first word that hold the address.
    pub const ADDRESS_BITS: u32 = 45;
    /// `u64`: capacity of the part in entries, less one.
    pub const MASK: usize = 8;
    /// `u64`: number of blocks in the part.
    pub const BLOCKS: usize = 16;
}

/// Shadow of a region of 64 KiB in which blocks lie close together: a word for each place at which
/// a block may begin. A block is either in a shadow or in [`table`].
///
/// Shadows lie in chunks, which hold 16 of them, 32, 64 and so on. After the shadows of a chunk
/// come as many `u64`: the addresses of their regions, divided by the region's size. A shadow whose
/// number there is 0 is not in use yet.
pub mod shadow {
    /// Number of words of a shadow.
    pub const WORDS: usize = 4096;
    /// Binary logarithm of the number of bytes that a word stands for.
    pub const GRAIN_BITS: u32 = 4;
    /// Bit of a word that is set if a block begins there. The stack is in the lower 32 bits, and
    /// the block's size is between them and this bit.
    pub const PRESENT_FLAG: u64 = 1 << 63;
    /// Maximum number of chunks.
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

    /// Returns the chunk of the shadow with a number, and its index in that chunk.
    #[must_use]
    pub const fn locate_shadow(number: u64) -> (usize, u64) {
        let from_one = number + (1 << FIRST_BITS);
        let bits = from_one.ilog2();
        ((bits - FIRST_BITS) as usize, from_one - (1 << bits))
    }
}

/// Number of parts of the table of blocks in use.
pub const PART_COUNT: usize = 128;

/// Number of size classes by which a thread counts. The first counts objects without bytes, and the
/// second those of one byte; each further one has sizes twice as large. The last counts mappings.
pub const SIZE_COUNT: usize = 66;

/// Maximum number of threads with a name.
pub const MAX_NAMED_THREADS: u32 = 4096;

/// Binary logarithm of the units per object: in sampled mode, objects are counted in units of
/// 2^-16.
pub const OBJECT_BITS: u32 = 16;
/// Binary logarithm of the units per byte: in sampled mode, bytes are counted in units of 2^-8.
pub const BYTE_BITS: u32 = 8;

/// Number of counts of what could not be recorded.
pub const DROPPED_COUNT: usize = 7;
