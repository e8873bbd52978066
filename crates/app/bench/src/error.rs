//! Errors in a list of allocators, and errors of runs.

use std::process::ExitStatus;

/// An error in the user's list of allocators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocatorError {
    /// glibc's malloc is the only installed allocator.
    #[error(
        "no other allocator is installed (jemalloc, tcmalloc, mimalloc: Debian's libjemalloc2, \
         libtcmalloc-minimal4, libmimalloc2.0)"
    )]
    NoneInstalled,
    /// The list names an allocator twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// The list has the name of an unknown allocator.
    #[error(
        "{name:?} is not a known allocator; the known ones are glibc, {known}; or give a library \
         by its path, as in ./libmine.so"
    )]
    Unknown {
        /// The unknown name.
        name: String,
        /// The names of the known allocators.
        known: String,
    },
    /// A setting names a tunable that glibc's malloc does not have.
    #[error(
        "{allocator}: {tunable:?} is not a tunable of glibc's malloc; the tunables are: {known}"
    )]
    UnknownTunable {
        /// The allocator with its settings.
        allocator: String,
        /// The name of the setting.
        tunable: String,
        /// The names of the known settings.
        known: String,
    },
    /// The value of a setting is not a number.
    #[error("{allocator}: {tunable} needs a number, as in {tunable}=1")]
    NoNumber {
        /// The allocator with its settings.
        allocator: String,
        /// The name of the setting.
        tunable: String,
    },
}

/// An error that left a run without results.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program could not be run.
    #[error("{program}: {error}")]
    Io {
        /// The program's name in messages.
        program: String,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// The program failed.
    #[error("{program}: {status} {how}")]
    Failed {
        /// The program's name in messages.
        program: String,
        /// How the program ended.
        status: ExitStatus,
        /// How the program was run, such as `with jemalloc`.
        how: String,
    },
}
