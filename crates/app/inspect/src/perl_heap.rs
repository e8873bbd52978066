//! Reads Perl's values from a process, a core file, or a Devel::MAT file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use heapprof_formats::{FormatError, FormatReadOptions};
use heapprof_heap::{MallocHeap, ProcessImage};
use heapprof_perl_snapshot::{PerlSnapshot, PerlWalkError, walk};
use heapprof_perl_values::{ElementLookup, PerlValueAnalysis, ValueGraph, VariableError};
use heapprof_process::clock;
use heapprof_profile::Profile;
use sha2::{Digest, Sha256};

use crate::target::{WalkTarget, WalkTargetKind, is_same};

/// How Perl's values are read.
#[derive(Clone, Copy, Debug)]
pub struct PerlHeapReading {
    /// Keys are in paths only for hashes with at most this number of keys.
    pub keys: usize,
    /// Whether keys are replaced by their hashes.
    pub is_anonymous: bool,
    /// An address whose owner is wanted.
    pub wanted: Option<u64>,
}

/// Why a file of Devel::MAT can't be read.
#[derive(Debug, thiserror::Error)]
pub enum PerlFileError {
    /// The file can't be opened.
    #[error("cannot be read")]
    Unreadable(#[source] io::Error),
    /// The file is of another format, or damaged.
    #[error("{0}")]
    Format(FormatError),
}

/// Why Perl's values can't be read from a program.
#[derive(Debug, thiserror::Error)]
pub enum PerlProgramError {
    /// The rights of the program's user can't be taken.
    #[error("{0}")]
    Rights(io::Error),
    /// No perl was found, and the program's file is not where it was.
    #[error("{}", PerlWalkError::NoPerl)]
    NoProgram,
    /// There is no perl that can be read.
    #[error("{0}")]
    Walk(PerlWalkError),
}

/// Perl's values, and the source that they were read from.
pub struct PerlHeapOrigin {
    /// The values, with their paths and retained bytes.
    pub found: PerlValueAnalysis,
    /// Version of perl and number of interpreters, as text; empty if they are not known.
    pub perl: String,
    /// Notes about how the program was opened.
    pub notes: Vec<String>,
    /// Notes about parts that could not be read.
    pub lacks: Vec<String>,
    /// The value counts of each interpreter: the number that it reports itself, and the number of
    /// values of each type that were found.
    pub interpreters: Vec<(u64, Vec<(&'static str, u64)>)>,
    /// Bytes that malloc has allocated to the program, and free bytes in the caches of threads.
    pub malloc: Option<(u64, u64)>,
    /// Address of the value that owns the memory at the address that the user gave.
    pub owner: Option<u64>,
    /// The program's memory, if it is available.
    memory: Option<(WalkTarget, ProcessImage)>,
    /// The Devel::MAT file that was read.
    file: Option<PathBuf>,
}

/// The program's memory, and whether the values have hashes in place of keys.
struct OriginMemory<'a> {
    memory: Option<heapprof_perl_snapshot::ImageElements<'a>>,
    is_anonymous: bool,
}

impl ElementLookup for OriginMemory<'_> {
    fn find_key(&self, hash: u64, key: &str) -> Option<u64> {
        self.memory?.find_key(hash, key)
    }

    fn array_length(&self, array: u64) -> Option<u64> {
        self.memory?.array_length(array)
    }

    fn key_name(&self, key: &str) -> String {
        match self.is_anonymous {
            true => hash_key(key),
            false => key.to_string(),
        }
    }
}

impl PerlHeapOrigin {
    /// Reads a file of Devel::MAT.
    ///
    /// # Errors
    /// The file may not be readable, or be no such file.
    pub fn from_file(
        path: &Path,
        options: &FormatReadOptions,
        reading: PerlHeapReading,
    ) -> Result<Self, PerlFileError> {
        let file = File::open(path).map_err(PerlFileError::Unreadable)?;
        let values = heapprof_formats::perl_values(file, options).map_err(PerlFileError::Format)?;
        Ok(Self {
            found: find_paths(values, reading),
            perl: String::new(),
            notes: Vec::new(),
            lacks: Vec::new(),
            interpreters: Vec::new(),
            malloc: None,
            owner: None,
            memory: None,
            file: Some(path.to_path_buf()),
        })
    }

    /// Reads the values of a program from its memory. `notes` are about how it was opened.
    ///
    /// # Errors
    /// The program may be no perl that can be read.
    pub fn from_program(
        (target, image): (WalkTarget, ProcessImage),
        notes: Vec<String>,
        reading: PerlHeapReading,
    ) -> Result<Self, PerlProgramError> {
        let mut lacks = Vec::new();
        let heap = match MallocHeap::walk(&image) {
            Ok(heap) => Some(heap),
            Err(error) => {
                lacks.push(format!("{error}; {MISSING_HEAP_TEXT}"));
                None
            }
        };
        let wanted = reading.wanted;
        let walked = target.rights.acting(|| match &target.what {
            WalkTargetKind::Process(_, memory) => walk(&image, memory, heap.as_ref(), wanted),
            WalkTargetKind::Core(_, core) => walk(&image, core, heap.as_ref(), wanted),
        });
        let walked = walked.map_err(PerlProgramError::Rights)?;
        let has_program = target.has_program().map_err(PerlProgramError::Rights)?;
        let walked = walked.map_err(|error| match error {
            PerlWalkError::NoPerl if !has_program => PerlProgramError::NoProgram,
            error => PerlProgramError::Walk(error),
        })?;
        lacks.extend(find_missing_parts(&walked, &image));
        let interpreters = match walked.interpreters.len() {
            1 => String::new(),
            count => format!(" with {count} interpreters"),
        };
        let counts = walked.interpreters.iter();
        let counts = counts.map(|one| (one.reported_count, one.named_types().collect()));
        Ok(Self {
            found: find_paths(walked.values, reading),
            perl: format!("perl {}{interpreters}", walked.version),
            notes,
            lacks,
            interpreters: counts.collect(),
            malloc: walked.malloc.map(|malloc| (malloc.bytes, malloc.cached)),
            owner: walked.owner,
            memory: Some((target, image)),
            file: None,
        })
    }

    /// Makes the profile of all values, with the time of the reading if it is known.
    #[must_use]
    pub fn profile(&self) -> Profile {
        let mut profile = self.found.profile();
        if let Some((
            WalkTarget {
                what: WalkTargetKind::Process(..),
                ..
            },
            _,
        )) = &self.memory
        {
            profile.time_nanos = clock::nanos();
        }
        if !self.perl.is_empty() {
            let comment = profile.strings.intern(&format!("perl-heap: {}", self.perl));
            profile.comment.push(comment);
        }
        profile
    }

    /// Whether a path leads to the file that the values come from.
    #[must_use]
    pub fn is_file(&self, path: &Path) -> bool {
        let target = self.memory.as_ref();
        let is_core = target.is_some_and(|(target, _)| target.is_file(path));
        is_core || self.file.as_ref().is_some_and(|file| is_same(file, path))
    }

    /// Returns the number of the value that a Perl variable refers to. `text` is the variable as
    /// Perl code spells it.
    ///
    /// # Errors
    /// The value may not exist, or the text may be no such expression.
    pub fn variable(&self, text: &str, is_anonymous: bool) -> Result<u32, VariableError> {
        let memory = self.memory.as_ref();
        let inside = OriginMemory {
            memory: memory.map(|(_, image)| heapprof_perl_snapshot::ImageElements(image)),
            is_anonymous,
        };
        self.found.variable(text, &inside)
    }

    /// Returns the text of a value, up to `limit` bytes; `None` if the program's memory is not
    /// available.
    #[must_use]
    pub fn contents(&self, number: u32, limit: u32) -> Option<String> {
        let (_, image) = self.memory.as_ref()?;
        let value = self.found.values().get(number);
        let found = heapprof_perl_snapshot::contents(image, value.address, limit);
        Some(found.unwrap_or_else(|| {
            format!(
                "(a {} has no contents that can be shown)",
                value.kind.name()
            )
        }))
    }
}

fn find_paths(mut values: ValueGraph, reading: PerlHeapReading) -> PerlValueAnalysis {
    if reading.is_anonymous {
        values.rename_keys(hash_key);
    }
    PerlValueAnalysis::with_keys(values, reading.keys)
}

/// The note about missing figures for a program whose malloc blocks are not known.
const MISSING_HEAP_TEXT: &str = "sizes are those that Perl requested, other threads are not seen, \
                            and what only C code holds is shown as leaked";

/// Describes the parts that could not be read.
fn find_missing_parts(walked: &PerlSnapshot, image: &ProcessImage) -> Vec<String> {
    let mut lacks = Vec::new();
    if walked.has_other_malloc {
        lacks.push(format!(
            "this perl's values are not in glibc's malloc: it has its own malloc, like any perl \
             built with -Dusemymalloc; {MISSING_HEAP_TEXT}"
        ));
    }
    for (number, one) in (1..).zip(&walked.interpreters) {
        let apart = one.found_count().abs_diff(one.reported_count);
        if apart == 1 {
            lacks.push(format!(
                "interpreter {number} was making or freeing a value; what it was freeing is shown \
                 as leaked"
            ));
        } else if apart > 1 {
            lacks.push(format!(
                "interpreter {number} reports {} values, but {} were found",
                one.reported_count,
                one.found_count()
            ));
        }
    }
    if walked.is_damaged {
        lacks.push(
            "arrays or hashes claim more elements than the memory holds; the memory is damaged"
                .to_string(),
        );
    }
    if image.missing > 0 {
        lacks.push(format!("{} bytes of memory are missing", image.missing));
    }
    lacks
}

/// Returns a part of a key's hash, which replaces a key that may be secret. The text is the same
/// for equal keys in all files.
fn hash_key(key: &str) -> String {
    let hash = Sha256::digest(key.as_bytes());
    let bytes: Vec<String> = hash
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("#{}", bytes.concat())
}
