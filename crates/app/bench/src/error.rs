//! Errors of the choice of allocators, and of runs.

use std::process::ExitStatus;

/// What is wrong with a list of allocators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocatorError {
    /// There is no other allocator than glibc's.
    #[error(
        "no other allocator is installed (jemalloc, tcmalloc, mimalloc: Debian's libjemalloc2, \
         libtcmalloc-minimal4, libmimalloc2.0)"
    )]
    NoneInstalled,
    /// An allocator is named twice.
    #[error("{0} is there twice")]
    Twice(String),
    /// A name is that of no known allocator.
    #[error(
        "{name:?} is not known; these are: glibc, {known}; or name a library by its path, as \
         ./libmine.so"
    )]
    Unknown {
        /// The name.
        name: String,
        /// The names of the known allocators.
        known: String,
    },
    /// A setting is none of glibc's malloc.
    #[error("{allocator}: {tunable:?} is no tunable of glibc's malloc; these are: {known}")]
    UnknownTunable {
        /// The allocator with its settings.
        allocator: String,
        /// The name of the setting.
        tunable: String,
        /// The names of the known settings.
        known: String,
    },
    /// A setting has no number.
    #[error("{allocator}: {tunable} needs a number, as in {tunable}=1")]
    NoNumber {
        /// The allocator with its settings.
        allocator: String,
        /// The name of the setting.
        tunable: String,
    },
}

/// Why a run is not measured.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program can't be run.
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
        /// How it ended.
        status: ExitStatus,
        /// How it was run, such as `with jemalloc`.
        how: String,
    },
}
