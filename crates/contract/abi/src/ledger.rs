//! How the ledger of a recording lies in the memory of the recorded program.
//!
//! The engine has one [`LedgerHeader`] in its writable data, which says where each table is. A
//! reader outside finds it by its [`LEDGER_MAGIC`], and reads the tables as this module describes
//! them. docs/dev/ledger.md describes the whole. All numbers are in the machine's order.

use core::sync::atomic::{AtomicPtr, AtomicU32};

/// What a [`LedgerHeader`] begins with.
pub const LEDGER_MAGIC: [u8; 16] = *b"heapprof's books";

/// The version of this layout. Another one means that a reader of this one understands nothing.
pub const LEDGER_VERSION: u32 = 4;

/// A [`LedgerHeader`] lies at a multiple of this.
pub const LEDGER_ALIGN: usize = 16;

/// Where something is: its address in the program.
pub type TableAddress = AtomicPtr<()>;

/// Where all tables of a recording are.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct LedgerHeader {
    /// [`LEDGER_MAGIC`].
    pub magic: [u8; 16],
    /// [`LEDGER_VERSION`].
    pub version: u32,
    /// How many bytes this has.
    pub size: u32,
    /// Where this is, so that a copy of it is not taken for it; null if nothing was recorded.
    pub own: TableAddress,
    /// `i32`: the process that records.
    pub process: TableAddress,
    /// `u8`: 0 nothing is recorded now, 1 sampled, 2 exact.
    pub mode: TableAddress,
    /// `u64`: mean bytes between samples; 1 if every allocation is counted.
    pub period: TableAddress,
    /// `u64`: which recording of the process this is, from 1.
    pub epoch: TableAddress,
    /// `i64`: when it began, in nanoseconds since 1970.
    pub started: TableAddress,
    /// `i64`: the same on the clock `CLOCK_MONOTONIC`.
    pub since: TableAddress,
    /// [`heap`]: the sums of the process.
    pub heap: TableAddress,
    /// `[u64; DROPPED_COUNT]`: what could not be recorded.
    pub dropped: TableAddress,
    /// `u64`: the address of the first [`thread`]; 0 if there is none.
    pub threads: TableAddress,
    /// `u32`: how many stacks there are.
    pub stacks: TableAddress,
    /// [`chunks`] of `u64`, the address of the [`stack`] with each number.
    pub stack: TableAddress,
    /// `u32`: how many frames of interpreters there are.
    pub frames: TableAddress,
    /// [`chunks`] of `u64`, the address of the [`frame`] with each number.
    pub frame: TableAddress,
    /// `u32`: how many threads have asked for a name. At most [`MAX_NAMED_THREADS`] of them have
    /// one.
    pub names: TableAddress,
    /// [`chunks`] of [`name`]s. Number 1 is the first.
    pub name: TableAddress,
    /// [`moments`]: the history of the heap.
    pub moments: TableAddress,
    /// `i64`: when the heap was largest, in microseconds since the beginning.
    pub peak_at: TableAddress,
    /// `u32`: how many mappings are known.
    pub mappings: TableAddress,
    /// [`chunks`] of [`LedgerMapping`]s.
    pub mapping: TableAddress,
    /// The parts of the table of blocks in use, [`PART_COUNT`] of them.
    pub parts: TableAddress,
    /// How many bytes a part has, and where in it its [`table`] is.
    pub part: [u32; 2],
    /// Where in a [`thread`] these are, in bytes.
    pub thread: thread::ThreadOffsets,
    /// [`log::EventRing`]; null if no events are logged.
    pub log: TableAddress,
    /// `u64`: how many shadows there are; null if the blocks in use are missing.
    pub shadows: TableAddress,
    /// `[u64; shadow::MAX_SHADOW_CHUNKS]`: the addresses of the [`shadow`]s' chunks, 0 if there is
    /// none.
    pub shadow: TableAddress,
}

/// What a file that keeps the books beyond the end of their process begins with. The process has
/// the file mapped in pieces, and what is needed to make a profile lies in it.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct SharedLedgerHeader {
    /// [`SHARED_LEDGER_MAGIC`].
    pub magic: [u8; 16],
    /// [`LEDGER_VERSION`].
    pub version: u32,
    /// How many bytes this has.
    pub size: u32,
    /// [`process_state`]: what has become of the process.
    pub state: AtomicU32,
    /// How many of the `extents` there are.
    pub extents: AtomicU32,
    /// 1 if there was no room in the file for something, which is missing then.
    pub is_full: AtomicU32,
    /// Where the pieces of the file are.
    pub extent: [LedgerExtent; MAX_EXTENTS],
    /// What the process is called, up to a zero.
    pub program: [u8; 256],
    /// Where the tables are, without [`LEDGER_MAGIC`] and `own`. Single numbers and lists of chunks
    /// are copies, in `values`. `heap` and `dropped` may be old copies. The table of blocks in use
    /// is missing: `parts` is null.
    pub ledger: LedgerHeader,
    /// What [`LedgerHeader`] says of single numbers and lists of chunks.
    pub values: [u64; SHARED_VALUE_COUNT],
}

/// Where a process has mapped a piece of the file in which it keeps its books.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LedgerExtent {
    /// Its address.
    pub address: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
}

/// The most pieces.
pub const MAX_EXTENTS: usize = 128;

/// What a [`SharedLedgerHeader`] begins with.
pub const SHARED_LEDGER_MAGIC: [u8; 16] = *b"heapprof's kept\0";

/// How many words the values of a [`SharedLedgerHeader`] take. The history has most of them.
pub const SHARED_VALUE_COUNT: usize = 3200;

/// What has become of a process that keeps its books in a file.
pub mod process_state {
    /// It goes on, or it ended without a word.
    pub const NOT_ENDED: u32 = 0;
    /// It has written its last profile.
    pub const HAS_ENDED: u32 = 1;
    /// It has written its profile before it became another program.
    pub const BEFORE_EXEC: u32 = 2;
}

/// A thread's share of the sums. Threads are a list. One that has ended keeps its place, and what
/// it has counted.
pub mod thread {
    /// Where the parts of a thread are, in bytes from its begin.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(C)]
    pub struct ThreadOffsets {
        /// `u64`: the address of the next one; 0 behind the last.
        pub next: u32,
        /// [`chunks`](super::chunks) of [`counters`](super::counters), by number of the stack.
        pub counters: u32,
        /// [`chunks`](super::chunks) of `[u64; 2]`: objects and bytes of temporary allocations.
        pub temporary: u32,
        /// [`chunks`](super::chunks) of [`spread`](super::spread)s, if the recording is sampled.
        pub spread: u32,
        /// `[u64; SIZE_COUNT]` of what was allocated, by size, and `[u64; SIZE_COUNT]` of what was
        /// freed.
        pub sizes: u32,
        /// Nothing yet.
        pub unused: u32,
    }
}

/// An array that grows without moving: the addresses of [`MAX_CHUNKS`](chunks::MAX_CHUNKS) chunks.
/// Chunk `k` has `FIRST << k` elements, and its address is 0 if none of them was used. Elements
/// that were not used are zero.
pub mod chunks {
    /// How many addresses there are.
    pub const MAX_CHUNKS: usize = 24;
    /// How many elements the first chunk has.
    pub const FIRST_CHUNK_LEN: usize = 4096;
}

/// What one thread has counted of one stack: `u64`s, at these offsets, in the recording's unit.
pub mod counters {
    /// How many bytes it has.
    pub const LEN: usize = 64;
    /// Objects and bytes that were allocated.
    pub const ALLOCATED: usize = 0;
    /// Objects and bytes that were freed.
    pub const FREED: usize = 16;
    /// Objects and bytes in use at the peak, if `FALL` is the process's number of falls.
    pub const AT_PEAK: usize = 32;
    /// How often the heap had fallen from a peak when `AT_PEAK` was kept.
    pub const FALL: usize = 48;
}

/// How sure a thread's sums of one stack are: for what was allocated, and then for what was freed,
/// the samples (`u64`) and the variances of objects and of bytes (`f64`).
pub mod spread {
    /// How many bytes it has.
    pub const LEN: usize = 48;
}

/// The sums of the process, at these offsets. In sampled mode, bytes are in units of
/// 2^-[`BYTE_BITS`].
pub mod heap {
    /// `i64`: bytes in use. What threads have taken in advance counts as in use.
    pub const IN_USE: usize = 0;
    /// `i64`: the most bytes that were in use.
    pub const PEAK: usize = 8;
    /// `u64`: odd while the heap rises to a new peak; half of it counts the falls.
    pub const PHASE: usize = 16;
}

/// A stack: its own frames (`u64`, newest first) lie behind this. Its oldest frames are those of
/// another stack, with a lower number.
pub mod stack {
    /// How many bytes lie before the frames.
    pub const LEN: usize = 16;
    /// `u32`: the generation of mappings that its addresses are of.
    pub const GENERATION: usize = 0;
    /// `u16`: how many frames it has.
    pub const FRAMES: usize = 4;
    /// `u16`: how many of the oldest frames are those of `BASE`.
    pub const FROM_BASE: usize = 6;
    /// `u32`: the number of that other stack.
    pub const BASE: usize = 8;
    /// `u32`: why it has no frame that is older, one of [`stack_end`](super::stack_end).
    pub const END: usize = 12;
}

/// Why a stack has no frame that is older.
pub mod stack_end {
    /// The oldest frame is the outermost one of its thread.
    pub const OUTERMOST: u32 = 0;
    /// The file of the last frame has no unwind tables.
    pub const NO_TABLES: u32 = 1;
    /// The unwind tables of its file do not reach the code of the last frame.
    pub const NOT_COVERED: u32 = 2;
    /// The unwind tables say where the caller is, and there is none.
    pub const NO_CALLER: u32 = 3;
    /// The code of the last frame is in no file.
    pub const NO_FILE: u32 = 4;
    /// The bits that hold one of these.
    pub const REASON_MASK: u32 = 0xff;
    /// Beside one of these: the oldest frame is no code of a file, and was found by a frame pointer
    /// that its callee may not have had. The callee is the last frame then.
    pub const CALLEE_FLAG: u32 = 0x100;
}

/// What a frame is, by its highest four bits. Anything else is a return address.
pub mod word {
    /// The bits that say it.
    pub const KIND_MASK: u64 = 0xf << 60;
    /// The number of a [`frame`](super::frame) of an interpreter, in the lower 32 bits.
    pub const FRAME: u64 = 0x8 << 60;
    /// What an interpreter says of the whole stack.
    pub const LABEL: u64 = 0x9 << 60;
    /// The number of the thread whose stack it is, in the lower 32 bits.
    pub const THREAD: u64 = 0xa << 60;
    /// A frame of an interpreter for whose name there was no memory.
    pub const UNNAMED: u64 = FRAME | u32::MAX as u64;
    /// What stands below the newest frames of a stack that was too deep.
    pub const CUT: u64 = 1;
}

/// A frame of an interpreter: `u32`s, and behind them its name and its file.
pub mod frame {
    /// How many bytes lie before the texts.
    pub const LEN: usize = 16;
    /// `u32`: the line that its function begins at.
    pub const START_LINE: usize = 0;
    /// `u32`: its line.
    pub const LINE: usize = 4;
    /// `u32`: the bytes of its name.
    pub const NAME: usize = 8;
    /// `u32`: the bytes of its file's name.
    pub const FILE: usize = 12;
}

/// What a thread is called.
pub mod name {
    /// How many bytes it has.
    pub const LEN: usize = 24;
    /// `u32`: the kernel's number of the thread; 0 if it is not known.
    pub const ID: usize = 0;
    /// `u8`: whether the thread has ended, so that its number may be another one's.
    pub const IS_GONE: usize = 4;
    /// `u8`: how many forks lie between the first process and the one whose thread it was.
    pub const GENERATION: usize = 5;
    /// Its name, up to a zero.
    pub const NAME: usize = 8;
}

/// The history of the heap.
pub mod moments {
    /// How many there can be.
    pub const MAX_MOMENTS: usize = 1000;
    /// `u64`: how many there are.
    pub const COUNT: usize = 0;
    /// Where the first one is.
    pub const FIRST_MOMENT: usize = 16;
    /// How many bytes one has: microseconds since the beginning, bytes and objects in use (`i64`).
    pub const LEN: usize = 24;
}

/// A piece of a file that is or was mapped as code.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LedgerMapping {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Which byte of the file it begins with.
    pub offset: u64,
    /// The address of the file's name.
    pub path: u64,
    /// How many bytes that has.
    pub path_len: u32,
    /// The last generation of mappings in which it was there.
    pub last: u32,
    /// Whether the file there is another one by now, or none.
    pub is_deleted: u32,
    /// How many bytes of `id` count.
    pub id_len: u32,
    /// The file's build id.
    pub id: [u8; 64],
}

/// A part of the table of blocks in use.
pub mod table {
    /// `u64`: the address of its entries, of 16 bytes each: `address / 8` in the lower 45 bits of
    /// the first word and the block's size from 2^32 on in the others; the stack in the lower 32
    /// bits of the second, and the rest of the size in the upper ones. An entry of two zeros is
    /// empty.
    pub const ENTRY: usize = 0;
    /// The bits of the first word that have the address.
    pub const ADDRESS_BITS: u32 = 45;
    /// `u64`: how many entries there is room for, less one.
    pub const MASK: usize = 8;
    /// `u64`: how many blocks there are.
    pub const BLOCKS: usize = 16;
}

/// The shadow of a region of 64 KiB in which blocks lie close together: a word for each place that
/// one may have. Blocks are either in a shadow or in [`table`].
///
/// Shadows lie in chunks, which hold 16 of them, 32, 64 and so on. Behind the shadows of a chunk
/// are as many `u64`: the addresses of their regions, divided by the region's size. One of 0 is not
/// in use yet.
pub mod shadow {
    /// How many words a shadow has.
    pub const WORDS: usize = 4096;
    /// A word is for so many bytes of memory, as a power of two.
    pub const GRAIN_BITS: u32 = 4;
    /// The bit of a word that says that a block begins there. The stack is in the lower 32 bits,
    /// and the block's size between them.
    pub const PRESENT_FLAG: u64 = 1 << 63;
    /// The most chunks.
    pub const MAX_SHADOW_CHUNKS: usize = 28;
    /// How many shadows the first chunk has, as a power of two.
    const FIRST_BITS: u32 = 4;

    /// How many shadows a chunk has.
    #[must_use]
    pub const fn chunk_len(chunk: usize) -> u64 {
        1 << (chunk as u32 + FIRST_BITS)
    }

    /// The number of the first shadow of a chunk.
    #[must_use]
    pub const fn first_shadow(chunk: usize) -> u64 {
        chunk_len(chunk) - (1 << FIRST_BITS)
    }

    /// In which chunk the shadow with a number is, and which one of it.
    #[must_use]
    pub const fn locate_shadow(number: u64) -> (usize, u64) {
        let from_one = number + (1 << FIRST_BITS);
        let bits = from_one.ilog2();
        ((bits - FIRST_BITS) as usize, from_one - (1 << bits))
    }
}

/// How many parts the table of blocks in use has.
pub const PART_COUNT: usize = 128;

/// How many counts a thread has by size. The first is that of objects without bytes, and the one
/// behind it those of one byte; each further one is of sizes twice as large. The last is that of
/// mappings.
pub const SIZE_COUNT: usize = 66;

/// The most threads with a name.
pub const MAX_NAMED_THREADS: u32 = 4096;

/// In sampled mode, objects are counted in units of 2^-16, and bytes in units of 2^-8.
pub const OBJECT_BITS: u32 = 16;
/// See [`OBJECT_BITS`].
pub const BYTE_BITS: u32 = 8;

/// How many counts there are of what could not be recorded.
pub const DROPPED_COUNT: usize = 7;
