//! The two Perl scripts that this module stands for, and the facts in which they differ.

/// A Perl script of the pprof family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerlTool {
    /// jemalloc's `jeprof`.
    Jeprof,
    /// gperftools' `pprof`, which Debian calls `google-pprof`.
    GooglePprof,
}

impl PerlTool {
    /// Returns the command that users type.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::Jeprof => "jeprof",
            Self::GooglePprof => "google-pprof",
        }
    }

    /// Returns the name that the script gives itself in its shell.
    pub(super) fn shell_name(self) -> &'static str {
        match self {
            Self::Jeprof => "jeprof",
            Self::GooglePprof => "pprof",
        }
    }

    /// Whether the script hides all functions that an allocator function called. Otherwise it hides
    /// only the allocator functions themselves.
    pub(super) fn hides_callees_of_allocators(self) -> bool {
        self == Self::Jeprof
    }

    /// Returns the allocator functions that only this script knows, besides those of both.
    pub(super) fn own_allocator_functions(self) -> &'static [&'static str] {
        match self {
            Self::Jeprof => &[
                "newImpl",
                "void* newImpl",
                "aligned_alloc",
                "mallocx",
                "rallocx",
                "xallocx",
                "dallocx",
                "sdallocx",
                "sdallocx_noflags",
            ],
            Self::GooglePprof => &[],
        }
    }

    /// Whether the script shows an unknown line as 0. Otherwise it is shown as `?`, as addr2line
    /// prints it.
    pub(super) fn numbers_unknown_lines(self) -> bool {
        self == Self::GooglePprof
    }

    /// Returns a place of addr2line as the script reads it.
    pub(super) fn clean_place(self, place: String) -> String {
        match self {
            Self::Jeprof => place,
            Self::GooglePprof => {
                let end = place.rfind(" (discriminator ").unwrap_or(place.len());
                let place = place.get(..end).unwrap_or(&place);
                match place.strip_suffix(":?") {
                    Some(file) => format!("{file}:0"),
                    None => place.to_string(),
                }
            }
        }
    }
}
