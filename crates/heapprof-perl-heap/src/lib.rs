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

mod builder;
mod cycles;
mod found;
mod kind;
mod leaked;
mod leaks;
mod pads;
mod paths;
pub mod pmat;
mod profile;
mod referrers;
mod size;
mod step;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod values;
mod variable;

pub use self::builder::Builder;
pub use self::cycles::Cycle;
pub use self::found::{Described, Found};
pub use self::kind::Kind;
pub use self::leaks::Leak;
pub use self::pads::Pad;
pub use self::paths::MOST_KEYS;
pub use self::profile::profile;
pub use self::referrers::{Identified, Referrer, Way};
pub use self::size::{Bytes, Size};
pub use self::step::Step;
pub use self::summary::{Holder, Sum, Summary};
pub use self::text::TextId;
pub use self::values::{Phase, Value, Values};
pub use self::variable::{Memory, NoVariable};
