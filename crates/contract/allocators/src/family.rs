//! The known allocators with their prefixes, and the search for a function by its name.

use crate::call::AllocatorCall;
use crate::functions::{
    FunctionTable, JEMALLOC, MALLOC, MIMALLOC, MIMALLOC_HEAP, OPERATORS, RPMALLOC, SNMALLOC,
    SNMALLOC_RUST, TCMALLOC,
};

/// A known allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocatorFamily {
    /// malloc's family without a prefix. Which allocator it is depends on the file.
    Malloc,
    /// The operators new and delete of C++.
    Operators,
    /// jemalloc, with a prefix. Without one, only what malloc's family does not have.
    Jemalloc,
    /// mimalloc.
    Mimalloc,
    /// tcmalloc of gperftools.
    Tcmalloc,
    /// rpmalloc.
    Rpmalloc,
    /// snmalloc, by its functions for Rust and its own.
    Snmalloc,
}

impl AllocatorFamily {
    /// Returns the allocator's name in messages. The operators belong to malloc's family.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malloc | Self::Operators => "malloc",
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Rpmalloc => "rpmalloc",
            Self::Snmalloc => "snmalloc",
        }
    }
}

/// What the names of functions in heapprof's own allocator for Rust contain.
pub const OWN_COLLECTOR_NAME: &str = "heapprof_alloc";

/// Whether a function of this name shows that the allocators in its file are not to be looked at.
/// CPython contains mimalloc, and mostly does not use it. heapprof's own allocator for Rust records
/// the blocks of the allocator below it.
#[must_use]
pub fn hides_allocators(name: &str) -> bool {
    let is_ours = name.len() > 30 && name.starts_with('_') && name.contains(OWN_COLLECTOR_NAME);
    name == "PyObject_Malloc" || is_ours
}

/// A function of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorFunction {
    /// The allocator.
    pub family: AllocatorFamily,
    /// The prefix of all functions of this build; empty if there is none.
    pub prefix: &'static str,
    /// What a call does.
    pub call: AllocatorCall,
}

/// The functions of a build of an allocator.
struct AllocatorBuild {
    family: AllocatorFamily,
    /// The prefixes that builds give to the functions.
    prefixes: &'static [&'static str],
    /// The functions, by what follows the prefix.
    functions: &'static [FunctionTable],
    /// Whether the first argument is a heap, and the others follow.
    has_heap: bool,
}

impl AllocatorBuild {
    const fn new(
        family: AllocatorFamily,
        prefixes: &'static [&'static str],
        functions: &'static [FunctionTable],
    ) -> Self {
        Self {
            family,
            prefixes,
            functions,
            has_heap: false,
        }
    }
}

/// All known allocators. The first that has a function of a name is meant.
static BUILDS: [AllocatorBuild; 9] = [
    AllocatorBuild::new(AllocatorFamily::Malloc, &[""], &[MALLOC]),
    AllocatorBuild::new(AllocatorFamily::Operators, &[""], &[OPERATORS]),
    AllocatorBuild::new(AllocatorFamily::Jemalloc, &[""], &[JEMALLOC]),
    AllocatorBuild::new(
        AllocatorFamily::Jemalloc,
        &["_rjem_", "je_", "duckdb_je_", "je_arrow_"],
        &[MALLOC, JEMALLOC],
    ),
    AllocatorBuild::new(AllocatorFamily::Tcmalloc, &["tc_"], &[MALLOC, TCMALLOC]),
    AllocatorBuild {
        has_heap: true,
        ..AllocatorBuild::new(
            AllocatorFamily::Mimalloc,
            &["mi_heap_", "mi_theap_"],
            &[MIMALLOC_HEAP],
        )
    },
    AllocatorBuild::new(
        AllocatorFamily::Mimalloc,
        &["mi_"],
        &[MIMALLOC_HEAP, MIMALLOC],
    ),
    AllocatorBuild::new(AllocatorFamily::Rpmalloc, &["rp"], &[RPMALLOC]),
    AllocatorBuild::new(
        AllocatorFamily::Snmalloc,
        &["sn_"],
        &[MALLOC, SNMALLOC, SNMALLOC_RUST],
    ),
];

/// Length of the longest name of a known function.
pub const MAX_NAME_LEN: usize = 35;

/// Whether a name that begins with these bytes may be that of a known function, or one that
/// [hides](hides_allocators) them by its whole name. Most names of C++ and Rust are not. This is
/// for searches in millions of names.
#[must_use]
pub fn may_begin_known_name(name: &[u8]) -> bool {
    let Some((first, rest)) = name.split_first_chunk() else {
        return false;
    };
    match first {
        b"_Z" => matches!(rest, [b'n' | b'd', ..]),
        b"_r" | b"al" | b"ca" | b"cf" | b"da" | b"du" | b"fr" | b"je" | b"ma" | b"me" | b"mi"
        | b"po" | b"pv" | b"Py" | b"ra" | b"re" | b"rp" | b"sd" | b"sn" | b"tc" | b"va" | b"xa" => {
            true
        }
        _ => false,
    }
}

/// Returns the known function of a name.
///
/// ```
/// use heapprof_allocators::{AllocatorCall, allocator_function};
///
/// let found = allocator_function("_rjem_mallocx").unwrap();
/// assert_eq!((found.prefix, found.call), ("_rjem_", AllocatorCall::Allocate { size: 0 }));
/// assert_eq!(allocator_function("je_malloc_usable_size"), None);
/// ```
#[must_use]
pub fn allocator_function(name: &str) -> Option<AllocatorFunction> {
    // Most names in a program are longer.
    if name.len() > MAX_NAME_LEN {
        return None;
    }
    BUILDS.iter().find_map(|build| {
        build.prefixes.iter().find_map(|prefix| {
            let rest = name.strip_prefix(prefix)?;
            let mut all = build.functions.iter().copied().flatten();
            let (_, call) = all.find(|(name, _)| *name == rest)?;
            Some(AllocatorFunction {
                family: build.family,
                prefix,
                call: if build.has_heap {
                    call.behind_one()
                } else {
                    *call
                },
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_longer_than_the_longest() {
        let names = BUILDS.iter().flat_map(|build| {
            let all = build.functions.iter().copied().flatten();
            all.flat_map(|(name, _)| {
                build
                    .prefixes
                    .iter()
                    .map(|prefix| prefix.len() + name.len())
            })
        });
        assert_eq!(names.max(), Some(MAX_NAME_LEN));
    }

    #[test]
    fn every_name_may_begin_so() {
        for build in &BUILDS {
            for (name, _) in build.functions.iter().copied().flatten() {
                for prefix in build.prefixes {
                    let name = format!("{prefix}{name}");
                    assert!(may_begin_known_name(name.as_bytes()), "{name}");
                }
            }
        }
        assert!(may_begin_known_name(b"PyObject_Malloc"));
        assert!(!may_begin_known_name(b"_ZN4core3fmt"));
    }
}
