//! Finds allocators whose blocks heapprof does not see. A survey reports the files of a program
//! that contain such an allocator, or that call functions of a shared allocator outside malloc's
//! family. Allocators are recognized by the names of their functions.
//!
//! heapprof hooks malloc and its family, and the operators of C++, by their names in shared
//! libraries. An allocator that is linked into a file under other names is called directly, past
//! the hooks. Calls of a shared allocator's functions outside malloc's family are not seen either.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use heapprof_allocators::{AllocatorFamily, allocator_function, hides_allocators};
use memchr::memmem;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

pub use heapprof_allocators::AllocatorRole;

use crate::SymbolizeOptions;
use crate::storage::FileStorage;

/// An allocator whose blocks the hooks do not see.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownAllocator {
    /// The allocator's name.
    pub name: &'static str,
    /// Advice to the user: how to see the allocator's blocks.
    pub remedy: &'static str,
    /// Whether a recording of mappings counts the memory that the allocator maps.
    pub has_countable_mappings: bool,
}

/// Advice to the user: how to see the blocks of an allocator whose functions have no names.
pub const NAMELESS_REMEDY: &str = "a build with symbols, or with its names below \
                                   /usr/lib/debug/.build-id, is recorded completely";

const SHARED_REMEDY: &str =
    "a build without it, or with it as a shared library, is recorded completely";

static JEMALLOC: KnownAllocator = KnownAllocator {
    name: AllocatorFamily::Jemalloc.name(),
    remedy: "a build without it is recorded completely; a jemalloc that was built for that writes \
             its own profiles (prof:true), which heapprof reads",
    has_countable_mappings: true,
};
/// jemalloc's functions that malloc's family does not have, in a build without a prefix.
static JEMALLOC_EXTENDED: KnownAllocator = KnownAllocator {
    name: AllocatorFamily::Jemalloc.name(),
    remedy: "a build that calls malloc and free is recorded completely",
    has_countable_mappings: false,
};
static MIMALLOC: KnownAllocator = with_shared_build(AllocatorFamily::Mimalloc);
static TCMALLOC: KnownAllocator = with_shared_build(AllocatorFamily::Tcmalloc);
static RPMALLOC: KnownAllocator = with_shared_build(AllocatorFamily::Rpmalloc);
static SNMALLOC: KnownAllocator = with_shared_build(AllocatorFamily::Snmalloc);
static PERL_MALLOC: KnownAllocator = KnownAllocator {
    name: "Perl's own malloc (-Dusemymalloc)",
    remedy: "a perl that was built with -Uusemymalloc, as most are, is recorded completely",
    has_countable_mappings: false,
};
static GO_HEAP: KnownAllocator = KnownAllocator {
    name: "Go's heap",
    remedy: "Go's own heap profiles (runtime/pprof), which heapprof reads, show it",
    has_countable_mappings: false,
};

const fn with_shared_build(family: AllocatorFamily) -> KnownAllocator {
    KnownAllocator {
        name: family.name(),
        remedy: SHARED_REMEDY,
        has_countable_mappings: true,
    }
}

/// Maximum number of allocator functions that a survey names for a file that calls them.
const MAX_NAMED_FUNCTIONS: usize = 4;

/// Returns the allocator that has a function of this name, and whether the function allocates or
/// frees. `None` for the functions that the hooks see: malloc's family and the operators.
pub fn allocator_of(function: &str) -> Option<(&'static KnownAllocator, AllocatorRole)> {
    match function {
        // An ordinary perl has Perl_malloc, too, but there it calls malloc.
        "Perl_malloced_size" => return Some((&PERL_MALLOC, AllocatorRole::Allocates)),
        "runtime.mallocgc" => return Some((&GO_HEAP, AllocatorRole::Allocates)),
        _ => {}
    }
    let found = allocator_function(function)?;
    let allocator = match found.family {
        AllocatorFamily::Malloc | AllocatorFamily::Operators => return None,
        AllocatorFamily::Jemalloc if found.prefix.is_empty() => &JEMALLOC_EXTENDED,
        AllocatorFamily::Jemalloc => &JEMALLOC,
        AllocatorFamily::Mimalloc => &MIMALLOC,
        AllocatorFamily::Tcmalloc => &TCMALLOC,
        AllocatorFamily::Rpmalloc => &RPMALLOC,
        AllocatorFamily::Snmalloc => &SNMALLOC,
    };
    Some((allocator, found.call.role()))
}

/// A way in which a program allocates without calling the hooked functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnhookedAllocator {
    /// The file contains the allocator.
    Inside {
        /// The allocator's name.
        name: &'static str,
        /// Advice to the user: how to see the allocator's blocks.
        remedy: &'static str,
        /// Whether a recording of mappings counts the memory that the allocator maps.
        has_countable_mappings: bool,
        /// The file that contains the allocator.
        file: PathBuf,
        /// A function of the allocator.
        function: String,
        /// Why the allocator could not be hooked, if that was tried.
        why: Option<String>,
    },
    /// The file calls functions of a shared allocator, other than the functions of malloc's family.
    Called {
        /// The allocator's name.
        name: &'static str,
        /// The file that calls the allocator.
        file: PathBuf,
        /// Names of some of the called functions.
        functions: String,
        /// Role of the first function in `functions`. Functions that allocate come before functions
        /// that free.
        role: AllocatorRole,
    },
    /// The file contains the allocator's messages, but no names of functions.
    Nameless {
        /// The allocator's name.
        name: &'static str,
        /// The file that contains the allocator.
        file: PathBuf,
    },
    /// A C library is loaded twice. dlmopen loads a second copy for a part of a program.
    SecondLibc {
        /// The C library.
        file: PathBuf,
    },
}

/// The allocator functions that a file defines and calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileAllocators {
    /// The known allocator functions that the file defines.
    defined: Vec<(String, AllocatorRole)>,
    /// The known allocator functions that the file refers to.
    called: Vec<(String, AllocatorRole)>,
    /// Whether the file exports malloc to other files.
    exports_malloc: bool,
    /// The allocator whose messages are in the file, if the file has no names of its functions.
    nameless: Option<AllocatorFamily>,
}

/// Searches files for allocators, and reads each file only once.
#[derive(Debug, Default)]
pub struct AllocatorSurvey {
    options: SymbolizeOptions,
    known: HashMap<PathBuf, FileAllocators>,
}

impl AllocatorSurvey {
    /// Makes a survey that opens only files that the options allow.
    #[must_use]
    pub fn new(options: SymbolizeOptions) -> Self {
        Self {
            options,
            known: HashMap::new(),
        }
    }

    /// Returns the ways in which a program allocates past the hooks. `files` are the program's
    /// files, its executable first. A file that is mapped several times occurs several times in the
    /// list.
    pub fn survey_files<'a>(
        &mut self,
        files: impl IntoIterator<Item = &'a Path>,
    ) -> Vec<UnhookedAllocator> {
        let (mut all, mut found) = (Vec::<(&Path, FileAllocators)>::new(), Vec::new());
        let mut seen = HashSet::new();
        for file in files {
            if !seen.insert(file.as_os_str()) {
                let is_libc = file.file_name().is_some_and(|name| name == "libc.so.6");
                let second = UnhookedAllocator::SecondLibc {
                    file: file.to_path_buf(),
                };
                if is_libc && !found.contains(&second) {
                    found.push(second);
                }
                continue;
            }
            all.push((file, self.survey_file(file)));
        }
        // The number of files that define a function.
        let mut definers = HashMap::<&str, usize>::new();
        for (_, of) in &all {
            let names: HashSet<&str> = of.defined.iter().map(|(name, _)| &**name).collect();
            for name in names {
                *definers.entry(name).or_default() += 1;
            }
        }
        for (i, (file, of)) in all.iter().enumerate() {
            // A function linked into the program itself takes precedence over every library, but a
            // library that exports malloc comes after heapprof's own.
            let is_shared = i != 0 && of.exports_malloc;
            let is_unseen = |&&(_, role): &&(String, AllocatorRole)| {
                role == AllocatorRole::Allocates && !is_shared
            };
            if let Some((function, _)) = of.defined.iter().find(is_unseen)
                && let Some((allocator, _)) = allocator_of(function)
            {
                found.push(UnhookedAllocator::Inside {
                    name: allocator.name,
                    remedy: allocator.remedy,
                    has_countable_mappings: allocator.has_countable_mappings,
                    file: file.to_path_buf(),
                    function: function.clone(),
                    why: None,
                });
            }
            if let Some(family) = of.nameless {
                found.push(UnhookedAllocator::Nameless {
                    name: family.name(),
                    file: file.to_path_buf(),
                });
            }
            let is_there = |function: &String| {
                let own = of.defined.iter().any(|(name, _)| name == function);
                definers.get(&**function).copied().unwrap_or(0) > usize::from(own)
            };
            let mut called: Vec<&(String, AllocatorRole)> = of.called.iter().collect();
            called.retain(|(function, _)| is_there(function));
            called.sort_by_key(|(_, role)| *role == AllocatorRole::Frees);
            if let Some((function, role)) = called.first()
                && let Some((allocator, _)) = allocator_of(function)
            {
                let names = called.iter().map(|(name, _)| name.as_str());
                let functions: Vec<&str> = names.take(MAX_NAMED_FUNCTIONS).collect();
                found.push(UnhookedAllocator::Called {
                    name: allocator.name,
                    file: file.to_path_buf(),
                    functions: functions.join(", "),
                    role: *role,
                });
            }
        }
        found
    }

    fn survey_file(&mut self, file: &Path) -> FileAllocators {
        let options = &self.options;
        let look = || read_allocators(file, options).unwrap_or_default();
        let known = self.known.entry(file.to_path_buf());
        known.or_insert_with(look).clone()
    }
}

/// Finds the allocator functions that a file defines and calls. `None` if the file is no readable
/// ELF file.
fn read_allocators(file: &Path, options: &SymbolizeOptions) -> Option<FileAllocators> {
    if !file.is_absolute() {
        return None;
    }
    let storage = FileStorage::with_options(options);
    let elf = ElfFile64::<Endianness>::parse(storage.map(file).ok()?).ok()?;
    let mut of = FileAllocators::default();
    let mut hides = false;
    for symbol in elf.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        let is_defined = symbol.is_definition();
        hides |= is_defined && hides_allocators(name);
        if name == "malloc" && is_defined {
            of.exports_malloc = true;
        }
        if let Some((_, role)) = allocator_of(name) {
            let to = if is_defined {
                &mut of.defined
            } else {
                &mut of.called
            };
            to.push((name.to_string(), role));
        }
    }
    for symbol in elf.symbols().filter(|symbol| symbol.is_definition()) {
        let Ok(name) = symbol.name() else { continue };
        hides |= hides_allocators(name);
        if let Some((_, role)) = allocator_of(name) {
            of.defined.push((name.to_string(), role));
        }
    }
    if hides {
        of.defined.clear();
    } else if of.defined.is_empty() && !of.exports_malloc && elf.symbols().next().is_none() {
        of.nameless = find_messages(&elf);
    }
    Some(of)
}

/// Finds the allocator whose messages are among a file's constants. Files with very many constants
/// are not searched.
fn find_messages(elf: &ElfFile64<'_, Endianness>) -> Option<AllocatorFamily> {
    const MESSAGES: [(AllocatorFamily, &[u8]); 3] = [
        (AllocatorFamily::Jemalloc, b"<jemalloc>: "),
        (AllocatorFamily::Mimalloc, b"mimalloc: "),
        (AllocatorFamily::Tcmalloc, b"tcmalloc: large alloc"),
    ];
    const MAX_SEARCHED_LEN: usize = 64 << 20;
    let constants = elf.section_by_name(".rodata")?.data().ok()?;
    if constants.len() > MAX_SEARCHED_LEN {
        return None;
    }
    let mut all = MESSAGES.into_iter();
    all.find_map(|(family, text)| memmem::find(constants, text).map(|_| family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_names() {
        let of = |name: &str| allocator_of(name).map(|(of, role)| (of.name, role));
        use AllocatorRole::{Allocates, Frees};
        for (function, expected) in [
            ("mi_malloc_aligned", Some(("mimalloc", Allocates))),
            ("mi_free", Some(("mimalloc", Frees))),
            ("mi_heap_malloc", Some(("mimalloc", Allocates))),
            ("mi_malloc_size", None),
            ("_rjem_sdallocx", Some(("jemalloc", Frees))),
            ("mallocx", Some(("jemalloc", Allocates))),
            ("malloc", None),
            ("free", None),
            ("tc_malloc", Some(("tcmalloc", Allocates))),
            ("tc_malloc_size", None),
            ("rpfree", Some(("rpmalloc", Frees))),
            ("rp", None),
            ("Perl_malloc", None),
            ("Perl_mfree", None),
        ] {
            assert_eq!(of(function), expected, "{function}");
        }
        assert!(of("Perl_malloced_size").is_some_and(|(name, _)| name.contains("usemymalloc")));
    }

    #[test]
    fn what_is_no_program_has_no_allocator() {
        let mut survey = AllocatorSurvey::default();
        let files = [
            "/nowhere",
            "[vdso]",
            "/proc/self/exe",
            "/dev/null",
            "/etc/passwd",
        ];
        let found = survey.survey_files(files.iter().map(Path::new));
        assert_eq!(found, []);
        // With this number of files, comparing each file with all others would take hours.
        let many: Vec<PathBuf> = (0..200_000)
            .map(|n| format!("/nowhere/{n}").into())
            .collect();
        assert_eq!(survey.survey_files(many.iter().map(|file| &**file)), []);
        let libc = Path::new("/nowhere/libc.so.6");
        let file = libc.to_path_buf();
        assert_eq!(
            survey.survey_files([libc, Path::new("/nowhere/b"), libc, libc]),
            [UnhookedAllocator::SecondLibc { file }]
        );
    }
}
