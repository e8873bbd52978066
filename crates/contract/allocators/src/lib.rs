//! The functions of known allocators, by their names in symbol tables.
//!
//! An allocator has functions that allocate, resize or free blocks. A build may give all of them a
//! prefix, so that they don't clash with libc's: `_rjem_malloc` is jemalloc's malloc in a Rust
//! program. [`allocator_function`] splits such a name, and returns what a call of the function
//! does. The arguments are those of the allocators' own headers: jemalloc 5.3, mimalloc 2.2 and
//! 3.1, gperftools 2.16, rpmalloc 1.4 and snmalloc 0.7.
//!
//! Names with a compiler's suffix (`je_malloc.part.0`) are other functions with other arguments,
//! and are not known.
#![forbid(unsafe_code)]

mod call;
mod choice;
mod family;
mod functions;
#[cfg(test)]
mod tests;

pub use call::{AllocatorCall, AllocatorRole};
pub use choice::{AllocatorChoice, UnknownAllocator};
pub use family::{
    AllocatorFamily, AllocatorFunction, MAX_NAME_LEN, OWN_COLLECTOR_NAME, allocator_function,
    hides_allocators, may_begin_known_name,
};
