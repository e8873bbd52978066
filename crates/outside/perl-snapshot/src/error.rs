//! Reasons why a program's values can't be read.

use heapprof_perl::{PerlVersion, UnreadablePerl};

/// The reason why a program's values can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerlWalkError {
    /// The program has no perl.
    #[error("there is no perl in this program")]
    NoPerl,
    /// The program's perl can't be read.
    #[error("{0}")]
    Unreadable(UnreadablePerl),
    /// The structures of this version are not known.
    #[error("the values of perl {0} are not supported; those of 5.22 to 5.42 are")]
    Version(PerlVersion),
    /// There is no interpreter yet, or no interpreter any more.
    #[error("its perl has no values: it is starting, or has ended")]
    NoInterpreter,
}
