//! Why a program's values can't be read.

use heapprof_perl::{PerlVersion, UnreadablePerl};

/// Why a program's values can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerlWalkError {
    /// There is no perl in it.
    #[error("no perl is in this program")]
    NoPerl,
    /// The perl can't be read.
    #[error("{0}")]
    Unreadable(UnreadablePerl),
    /// Its structures are not known.
    #[error("the values of perl {0} are not known; those of 5.22 to 5.42 are")]
    Version(PerlVersion),
    /// It has begun, or ended.
    #[error("its perl has no values: it is starting, or has ended")]
    NoInterpreter,
}
