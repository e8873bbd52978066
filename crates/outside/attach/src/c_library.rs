//! The C libraries of programs that can be attached to, and what attaching has to know of each.

/// The C library of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CLibrary {
    Glibc,
    /// musl, in which loader and C library are one file.
    Musl,
}

impl CLibrary {
    /// Returns the C library whose loader has this path; `None` if it is neither of them.
    pub(crate) fn from_loader(path: &str) -> Option<Self> {
        match path.rsplit('/').next() {
            Some(name) if name.starts_with("ld-musl") => Some(Self::Musl),
            Some(name) if name.starts_with("ld-linux") => Some(Self::Glibc),
            _ => None,
        }
    }

    /// Returns the signals that are blocked while a thread is diverted: all but the one for whose
    /// handler libc waits when it changes the user of all threads.
    pub(crate) fn blocked_signals(self) -> u64 {
        const GLIBC_SETXID: u32 = 33;
        const MUSL_SYNCCALL: u32 = 34;
        let handled = match self {
            Self::Glibc => GLIBC_SETXID,
            Self::Musl => MUSL_SYNCCALL,
        };
        !(1 << (handled - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_known_by_its_loader() {
        for (path, expected) in [
            ("/lib64/ld-linux-x86-64.so.2", Some(CLibrary::Glibc)),
            ("/lib/ld-musl-x86_64.so.1", Some(CLibrary::Musl)),
            ("/opt/ld-musl/ld-linux-x86-64.so.2", Some(CLibrary::Glibc)),
            ("/system/bin/linker64", None),
            ("", None),
        ] {
            assert_eq!(CLibrary::from_loader(path), expected, "{path}");
        }
    }

    #[test]
    fn one_signal_is_not_blocked() {
        assert_eq!(CLibrary::Glibc.blocked_signals(), 0xffff_fffe_ffff_ffff);
        assert_eq!(CLibrary::Musl.blocked_signals(), 0xffff_fffd_ffff_ffff);
    }
}
