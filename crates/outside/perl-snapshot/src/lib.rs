//! Reads Perl's values from a copy of a program's memory: the contents of each value, and the
//! values to which it leads.
//!
//! [`walk()`] finds the perl and its interpreters in the copy, an image of `heapprof-heap`. It
//! makes a value from each head in the arenas of the interpreters, and an edge from each reference
//! that Perl counts. A malloc chunk that no value owns is assigned to the memory that points to it,
//! to the interpreter, or to the rest of the program. So the sizes add up to the memory that malloc
//! has given out.
//!
//! The program does no work for this, and nothing is loaded into the program. The layouts of perl
//! 5.22 to 5.42 are known. This crate must not depend on SQLite, the terminal or profiles.
//!
//! * `find.rs`: finds the perl of a program, and its interpreters.
//! * `layout.rs`: offsets and sizes by version.
//! * `reader.rs`: reads the copy by address.
//! * `sv.rs`: the head of a value, and its flags.
//! * `fill.rs`: makes a value of a head; `scalar.rs`, `container.rs`, `glob.rs`, `code.rs`,
//!   `pads.rs` and `magic.rs` read what each kind has.
//! * `roots.rs`: reads the interpreter's own data; `contexts.rs`: finds the values in running
//!   contexts.
//! * `claims.rs`: which chunk belongs to which value; `remaining_chunks.rs`: the chunks that belong
//!   to no value.
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
