//! What holds the memory in a Perl program: each value with its size, the data path by which it is
//! reached, and what would go if it went.
//!
//! [`Values`] are the values with what each leads to. They come from a file of Devel::MAT
//! ([`pmat`]). [`profile()`] finds a path to each: first through the symbol tables, then from other
//! roots; what nothing leads to has leaked. Names make a path, and no addresses, so that two
//! moments can be compared.
//!
//! It must never know SQLite, the terminal or reports.
#![forbid(unsafe_code)]

mod kind;
mod leaked;
mod paths;
pub mod pmat;
mod profile;
mod step;
#[cfg(test)]
mod tests;
mod text;
mod values;

pub use self::kind::Kind;
pub use self::paths::Paths;
pub use self::profile::profile;
pub use self::step::Step;
pub use self::text::TextId;
pub use self::values::{Edge, Value, Values};
