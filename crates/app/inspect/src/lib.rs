//! Looks into a process or a core file from outside, with all instruments at once.
//!
//! A [`WalkTarget`] is the process or the core file: its memory, and the names of its code and
//! data. [`blocks_profile()`] makes a profile of the blocks of its heap.
#![forbid(unsafe_code)]

mod blocks_profile;
mod target;

pub use self::blocks_profile::{BlocksProfile, MissingStacks, blocks_profile};
pub use self::target::{ProcessHold, WalkTarget, WalkTargetKind, is_same};
