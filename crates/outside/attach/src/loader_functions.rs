//! The functions of a program that load a library into it.

use crate::error::AttachError;
use crate::process::TargetProcess;

/// The functions by which a program's loader loads a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoaderFunctions {
    pub(crate) dlopen: u64,
    /// The mode for `dlopen`.
    pub(crate) mode: u32,
    pub(crate) dlsym: u64,
    /// The function that gives the reason of a failure; 0 if there is none.
    pub(crate) dlerror: u64,
}

impl LoaderFunctions {
    /// Finds the functions in a program. Before glibc 2.34, `dlopen` is in `libdl.so.2`, which the
    /// program may not use. glibc has other functions then, for its own use.
    ///
    /// # Errors
    /// The program has none of them.
    pub(crate) fn find(process: &TargetProcess) -> Result<Self, AttachError> {
        /// Load the library at once, and never unload it. Both libcs have the same numbers.
        const MODE: u32 = (libc::RTLD_NOW | 0x1000) as u32;
        /// What glibc's `dlopen` adds for its own function.
        const OWN_MODE: u32 = 0x8000_0000;
        let address = |name| process.symbol(name).map(|found| found.address);
        let names = [
            ("dlopen", "dlsym", MODE),
            ("__libc_dlopen_mode", "__libc_dlsym", MODE | OWN_MODE),
        ];
        let found = names.into_iter().find_map(|(dlopen, dlsym, mode)| {
            Some(Self {
                dlopen: address(dlopen)?,
                mode,
                dlsym: address(dlsym)?,
                dlerror: address("dlerror").unwrap_or(0),
            })
        });
        found.ok_or(AttachError::Missing("a usable loader (dlopen)"))
    }
}
