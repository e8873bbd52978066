//! Walks glibc's heap from outside: of a process, which is held only as long as its memory is
//! copied, or of a core file.
//!
//! [`Image`] is the memory that can be written, with the registers of all threads. [`Heap`] finds
//! malloc's arenas in it, and each of their chunks. [`Marks`] says which chunks can be reached from
//! roots (registers, stacks, variables, memory that is not malloc's), and from where. What can't be
//! reached has leaked.
//!
//! glibc 2.26 to 2.43 is known. Nothing of its symbols is needed: arenas are known by how they
//! look, and what differs between versions is found out by looking which way of reading makes
//! sense. It must never know SQLite, the terminal or profiles.
#![deny(unsafe_code)]

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
mod mapped;
mod mark;
mod points;
mod release;
mod retained;
mod settings;
mod sum;
mod summary;
mod walk;

pub use self::arena::Arena;
pub use self::bins::{List, ListKind};
pub use self::class::class;
pub use self::content::Content;
pub use self::core::Core;
pub use self::error::Error;
pub use self::heap::{Chunk, Heap, Use, Version};
pub use self::image::{Image, Region, Thread};
pub use self::kinds::{Kind, Kinds};
pub use self::live::{Capture, Outside, capture};
pub use self::mark::{Marks, Source, State, root_words};
pub use self::points::{Referrer, referrers};
pub use self::release::release;
pub use self::retained::{Retained, retained};
pub use self::settings::Settings;
pub use self::sum::Sum;
pub use self::summary::{ArenaSum, Chains, Group, Summary};
