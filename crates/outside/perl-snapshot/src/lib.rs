//! Reads Perl's values from a copy of a program's memory: what each has, and what it leads to.
//!
//! [`walk()`] finds the perl in heapwalk's copy, and its interpreters. It makes a value of each
//! head in their arenas, and ways of all references that Perl counts. What malloc's chunks have
//! that no value has is put where it belongs: to whose memory points there, to the interpreter, or
//! to what is not Perl's. So the sizes add up to what malloc has given out.
//!
//! Nothing is asked of the program, and nothing is loaded into it. The layouts are those of perls
//! 5.22 to 5.42. It must never know SQLite, the terminal or profiles.
//!
//! * `find.rs`: the perl of a program, and its interpreters.
//! * `layout.rs`: where things are by version.
//! * `reader.rs`: the copy, read by address.
//! * `sv.rs`: the head of a value, and its flags.
//! * `fill.rs`: makes a value of a head; `scalar.rs`, `container.rs`, `glob.rs`, `code.rs`,
//!   `pads.rs` and `magic.rs` say what each kind has.
//! * `roots.rs`: what the interpreter itself has; `contexts.rs`: what runs.
//! * `claims.rs`: which chunk is whose; `rest.rs`: the chunks that are nobody's by then.
#![forbid(unsafe_code)]

mod claims;
mod code;
mod container;
mod contents;
mod contexts;
mod error;
mod fill;
mod find;
mod glob;
mod layout;
mod magic;
mod names;
mod pads;
mod reader;
mod remaining_chunks;
mod roots;
mod scalar;
mod sv;
#[cfg(test)]
mod tests;
mod walk;

pub use self::contents::{ImageElements, contents};
pub use self::error::PerlWalkError;
pub use self::walk::{MallocTotals, PerlInterpreter, PerlSnapshot, walk};

/// An address in a program's memory.
type PerlAddress = u64;
