//! What the provider remembers of a thread between two stacks.

use heapprof_perl::LastWalk;

/// The memory that the engine keeps for the provider in each thread. All zero is a new one.
#[repr(C)]
pub(super) struct PerlThreadMemory {
    /// The interpreter that can be read again without a check; 0 if there is none.
    pub(super) quick: u64,
    /// The interpreter that the thread runs, as far as is known; 0 if it is not.
    pub(super) runs: u64,
    /// Address of the words in which calls of subs in C are noted for the interpreter that the
    /// thread runs; 0 if they are not noted.
    pub(super) calls: u64,
    /// Another interpreter that was the thread's for a moment, and the number of walks for which
    /// that need not be checked again.
    pub(super) passing: (u64, u32),
    /// The number of the interpreter of the last stack.
    pub(super) number: u32,
    /// The number of the interpreter that the thread runs.
    pub(super) runs_number: u32,
    /// The number for the state of things at the last walk, which must be the same for another one.
    pub(super) moment: u32,
    /// The number of walks that may follow before a stack is compared.
    pub(super) left: u32,
    /// The contexts that the last walk met.
    pub(super) walk: LastWalk,
}
