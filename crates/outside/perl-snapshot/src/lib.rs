//! Reads Perl's values from a copy of a program's memory: what each value has, and to which values
//! it leads.
//!
//! [`walk()`] finds the perl in heapwalk's copy, and its interpreters. It makes a value of each
//! head in their arenas, and edges of all references that Perl counts. A malloc chunk that no value
//! has is given to the memory that points there, to the interpreter, or to the part that is not
//! Perl's. So the sizes add up to what malloc has given out.
//!
//! The program does nothing for it, and nothing is loaded into it. The layouts are those of perls
//! 5.22 to 5.42. This crate must never know SQLite, the terminal or profiles.
//!
//! * `find.rs`: finds the perl of a program, and its interpreters.
//! * `layout.rs`: offsets and sizes by version.
//! * `reader.rs`: reads the copy by address.
//! * `sv.rs`: the head of a value, and its flags.
//! * `fill.rs`: makes a value of a head; `scalar.rs`, `container.rs`, `glob.rs`, `code.rs`,
//!   `pads.rs` and `magic.rs` read what each kind has.
//! * `roots.rs`: reads what the interpreter itself has; `contexts.rs`: what runs.
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
