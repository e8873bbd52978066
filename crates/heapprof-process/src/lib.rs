//! A process as the kernel shows it in /proc: what is mapped, which pages are there, and which of
//! them it shares with other processes.
//!
//! It must never know SQLite, the terminal or profiles.
#![forbid(unsafe_code)]

pub mod maps;
mod pages;
mod sharing;
mod smaps;

pub use self::pages::{PAGE, Page, PageMap, PageSet};
pub use self::sharing::Sharing;
pub use self::smaps::{Area, areas, is_swapped, own_memory};
