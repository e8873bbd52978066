//! Walks glibc's heap from outside: in a core file, or in a running process, which is suspended
//! only while its memory is copied.
//!
//! [`ProcessImage`] is the memory that the program can write to, with the registers of all threads.
//! [`MallocHeap`] finds malloc's arenas in it, and each of their chunks. [`ChunkMarks`] says which
//! chunks can be reached from roots (registers, stacks, variables, memory that is not malloc's),
//! and from where. A chunk in use that can't be reached has leaked.
//!
//! Versions 2.26 to 2.43 of glibc can be read, without symbols: arenas are recognized by their
//! contents. Where versions differ, each layout is tried, and the one that fits is used. This crate
//! must not depend on SQLite, the terminal or profiles.
#![deny(unsafe_code)]

mod arch;
mod arena;
mod bins;
mod class;
mod content;
mod core;
mod error;
#[cfg(test)]
mod fixture;
mod heap;
mod image;
mod kinds;
mod lists;
#[cfg_attr(not(target_arch = "x86_64"), path = "elsewhere.rs")]
mod live;
mod mapped_chunks;
mod mark;
mod owners;
mod points;
mod release;
mod retained_size;
mod settings;
mod sum;
mod summary;
mod walk;

pub use self::arena::MallocArena;
pub use self::bins::{FreeList, FreeListKind, is_fragmented, trimmable_bytes};
pub use self::class::object_class;
pub use self::content::BlockContent;
pub use self::core::CoreMemory;
pub use self::error::HeapWalkError;
pub use self::heap::{ChunkUse, HeapChunk, MallocHeap, MallocVersion};
pub use self::image::{ImageRegion, ImageThread, ProcessImage};
pub use self::kinds::{BlockKind, BlockKinds};
pub use self::live::{ImageCapture, LiveMemory, capture, capture_with};
pub use self::mark::{ChunkMarks, ChunkState, PointerSource, root_words};
pub use self::owners::block_owners;
pub use self::points::{BlockReferrer, referrers};
pub use self::release::release;
pub use self::retained_size::{RetainedSizes, retained_sizes};
pub use self::settings::MallocSettings;
pub use self::sum::BlockSum;
pub use self::summary::{ArenaSum, BlockGroup, HeapSummary, LeakChains};
