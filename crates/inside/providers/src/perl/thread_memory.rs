//! The data that the provider keeps for each thread from one stack to the next.

use heapprof_perl::LastWalk;

/// Data of the provider for a thread, in memory that the engine supplies. All zeros is the initial
/// state.
#[repr(C)]
pub(super) struct PerlThreadMemory {
    /// Address of the interpreter whose next stack needs no check; 0 if there is none.
    pub(super) quick: u64,
    /// Address of the interpreter that the thread runs; 0 if it is not known.
    pub(super) runs: u64,
    /// Address of the words for calls of C subs by the interpreter that the thread runs; 0 if such
    /// calls are not stored.
    pub(super) calls: u64,
    /// Address of an interpreter that is active in this thread only for a moment, and the number of
    /// further stacks that are attributed, without a check, to the interpreter in `runs`. The
    /// address is 0 if there is no such interpreter.
    pub(super) passing: (u64, u32),
    /// Number of the interpreter whose stack was captured last.
    pub(super) number: u32,
    /// Number of the interpreter in `runs`.
    pub(super) runs_number: u32,
    /// Result of [`moment`](super::state::PerlStacks::moment) at the last stack. If it has changed,
    /// the data here is outdated.
    pub(super) moment: u32,
    /// Number of stacks until a stack is compared with the result of `Perl_caller_cx` again.
    pub(super) left: u32,
    /// The contexts in the stack that was captured last.
    pub(super) walk: LastWalk,
}
