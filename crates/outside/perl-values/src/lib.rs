//! Finds the owners of the memory in a Perl program: each value with its size, the data path by
//! which it is reached, and the bytes that would be freed with it.
//!
//! A [`ValueGraph`] has the values and the edges between them. It may come from a file of
//! Devel::MAT ([`pmat`]). [`profile()`] finds a path to each value: first through the symbol
//! tables, then from other roots. Values to which no root leads have leaked. Paths consist of
//! names, not of addresses, so that profiles of two moments can be compared.
//!
//! This crate must not depend on SQLite, the terminal or reports.
#![forbid(unsafe_code)]

mod analysis;
mod builder;
mod cycles;
mod kind;
mod leak_roots;
mod leaks;
mod pads;
mod paths;
pub mod pmat;
mod profile;
mod referrers;
mod size;
mod spelling;
mod step;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod values;
mod variable;

pub use self::analysis::{PerlValueAnalysis, ValueDescription};
pub use self::builder::ValueGraphBuilder;
pub use self::cycles::LeakedCycle;
pub use self::kind::PerlValueKind;
pub use self::leaks::PerlLeak;
pub use self::pads::PadSummary;
pub use self::paths::MAX_NAMED_KEYS;
pub use self::profile::profile;
pub use self::referrers::{ValueIdentification, ValueReferrer, WayStep};
pub use self::size::{ByteCounts, ValueSize};
pub use self::spelling::perl_spelling;
pub use self::step::ValueStep;
pub use self::summary::{PerlHeapSummary, RetainingVariable, ValueSum};
pub use self::text::TextId;
pub use self::values::{PathPhase, PerlValue, ValueGraph};
pub use self::variable::{ElementLookup, VariableError};
