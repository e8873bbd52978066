//! Reads Perl's values from a process, a core file, or a Devel::MAT file.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use heapprof_heap::{MallocHeap, ProcessImage};
use heapprof_inspect::{WalkTarget, WalkTargetKind, is_same};
use heapprof_perl_snapshot::{PerlSnapshot, PerlWalkError, walk};
use heapprof_perl_values::{ElementLookup, PerlValueAnalysis, ValueGraph, VariableError};
use heapprof_profile::Profile;
use sha2::{Digest, Sha256};

use crate::args::PerlHeapArgs;
use crate::command::target;
use crate::context::CommandContext;
use crate::name;

/// Perl's values, and the source that they were read from.
pub(super) struct PerlHeapOrigin {
    pub(super) found: PerlValueAnalysis,
    /// Version of perl and number of interpreters, as text; empty if they are not known.
    pub(super) perl: String,
    /// Notes about how the program was opened.
    pub(super) notes: Vec<String>,
    /// Notes about parts that could not be read.
    pub(super) lacks: Vec<String>,
    /// The value counts of each interpreter: the number that it reports itself, and the number of
    /// values of each type that were found.
    pub(super) interpreters: Vec<(u64, Vec<(&'static str, u64)>)>,
    /// Bytes that malloc has allocated to the program, and free bytes in the caches of threads.
    pub(super) malloc: Option<(u64, u64)>,
    /// Address of the value that owns the memory at the address that the user gave.
    pub(super) owner: Option<u64>,
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
    pub(super) fn open(context: &CommandContext, args: &PerlHeapArgs) -> Result<Self> {
        let path = name::path(&args.target);
        let is_named = args.target.starts_with("core:") || args.target.starts_with("pid:");
        match path.is_file() && !is_named {
            true if args.exe.is_some() => bail!("--exe: is for core files"),
            true => Self::open_file(context, args, &path),
            false => Self::open_program(args),
        }
    }
}

impl PerlHeapOrigin {
    fn open_file(context: &CommandContext, args: &PerlHeapArgs, path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let file = std::fs::File::open(path).with_context(|| format!("{shown}: cannot be read"))?;
        let options = context.sources.options();
        let values = heapprof_formats::perl_values(file, options).map_err(|error| {
            anyhow!(
                "{shown}: {error}; perl-heap reads files of Devel::MAT, and core:{shown} if it is a \
                 core file"
            )
        })?;
        Ok(Self {
            found: find_paths(values, args),
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

    fn open_program(args: &PerlHeapArgs) -> Result<Self> {
        let (target, image, notes) = target::open(&args.target, args.exe.as_deref())?;
        let mut lacks = Vec::new();
        let heap = match MallocHeap::walk(&image) {
            Ok(heap) => Some(heap),
            Err(error) => {
                lacks.push(format!("{error}; {MISSING_HEAP_TEXT}"));
                None
            }
        };
        let wanted = args.identify.or(args.who);
        let walked = target.rights.acting(|| match &target.what {
            WalkTargetKind::Process(_, memory) => walk(&image, memory, heap.as_ref(), wanted),
            WalkTargetKind::Core(_, core) => walk(&image, core, heap.as_ref(), wanted),
        })?;
        let name = name::shown(&args.target);
        let has_program = target.has_program()?;
        let walked = walked.map_err(|error| with_advice(&name, has_program, error))?;
        lacks.extend(find_missing_parts(&walked, &image));
        let interpreters = match walked.interpreters.len() {
            1 => String::new(),
            count => format!(" with {count} interpreters"),
        };
        let counts = walked.interpreters.iter();
        let counts = counts.map(|one| (one.reported_count, one.named_types().collect()));
        Ok(Self {
            found: find_paths(walked.values, args),
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
    pub(super) fn profile(&self) -> Profile {
        let mut profile = self.found.profile();
        if let Some((
            WalkTarget {
                what: WalkTargetKind::Process(..),
                ..
            },
            _,
        )) = &self.memory
        {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
            let now = now.and_then(|now| i64::try_from(now.as_nanos()).ok());
            profile.time_nanos = now.unwrap_or(0);
        }
        if !self.perl.is_empty() {
            let comment = profile.strings.intern(&format!("perl-heap: {}", self.perl));
            profile.comment.push(comment);
        }
        profile
    }

    /// Whether a path leads to the file that the values come from.
    pub(super) fn is_file(&self, path: &Path) -> bool {
        let target = self.memory.as_ref();
        let is_core = target.is_some_and(|(target, _)| target.is_file(path));
        is_core || self.file.as_ref().is_some_and(|file| is_same(file, path))
    }

    /// Returns the number of the value that a Perl variable refers to. `text` is the variable as
    /// Perl code spells it.
    pub(super) fn variable(&self, text: &str, is_anonymous: bool) -> Result<u32, VariableError> {
        let memory = self.memory.as_ref();
        let inside = OriginMemory {
            memory: memory.map(|(_, image)| heapprof_perl_snapshot::ImageElements(image)),
            is_anonymous,
        };
        self.found.variable(text, &inside)
    }

    /// Returns the text of a value, up to `limit` bytes. Returns `None` if `limit` is `None`.
    pub(super) fn contents(&self, number: u32, limit: Option<u32>) -> Result<Option<String>> {
        let Some(limit) = limit else {
            return Ok(None);
        };
        let Some((_, image)) = &self.memory else {
            bail!("--contents: needs the program's memory, a process or a core file");
        };
        let value = self.found.values().get(number);
        let found = heapprof_perl_snapshot::contents(image, value.address, limit);
        Ok(Some(found.unwrap_or_else(|| {
            format!("(a {} has none that can be shown)", value.kind.name())
        })))
    }
}

fn find_paths(mut values: ValueGraph, args: &PerlHeapArgs) -> PerlValueAnalysis {
    if args.anonymize {
        values.rename_keys(hash_key);
    }
    PerlValueAnalysis::with_keys(values, args.keys)
}

fn with_advice(name: &str, has_program: bool, error: PerlWalkError) -> anyhow::Error {
    let advice = match error {
        PerlWalkError::NoPerl if !has_program => {
            "; --exe FILE says where the program's file is now"
        }
        _ => "",
    };
    anyhow!("{name}: {error}{advice}")
}

/// The note about missing figures for a program whose malloc blocks are not known.
const MISSING_HEAP_TEXT: &str = "sizes are those that Perl asked for, other threads are not seen, and \
                            what only C code holds is shown as leaked";

/// Describes the parts that could not be read.
fn find_missing_parts(walked: &PerlSnapshot, image: &ProcessImage) -> Vec<String> {
    let mut lacks = Vec::new();
    if walked.has_other_malloc {
        lacks.push(format!(
            "this perl's values are not in glibc's malloc: it has a malloc of its own, as one has \
             that was built with -Dusemymalloc; {MISSING_HEAP_TEXT}"
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
                "interpreter {number} says that it has {} values, and {} were found",
                one.reported_count,
                one.found_count()
            ));
        }
    }
    if walked.is_damaged {
        lacks.push("arrays or hashes have more elements than memory; it is damaged".to_string());
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
