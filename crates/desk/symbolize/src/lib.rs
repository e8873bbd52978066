//! Functions, files, lines and inlined frames for the addresses of a profile, from ELF files and
//! their debug information.
//!
//! A collector writes addresses and the files that were mapped around them. [`symbolize`] opens
//! each of these files once, with its debug file if there is one (found by build id,
//! `.gnu_debuglink` or `--debug-dir`), looks up all addresses in it, and closes it before the next.
//! A [`Symbolizer`] keeps what it learned for the next profile. A file whose build id differs from
//! the profile's is refused. A damaged file causes a warning, never a panic: the next source is
//! tried, symbol tables last.
//!
//! The crate knows the profile and symbol files. It knows nothing about SQLite and the command
//! line.
#![deny(unsafe_code)]

pub mod allocators;
mod answer_cache;
mod answers;
mod demangle;
mod dwarf;
mod elf;
mod files;
mod function_starts;
mod itanium;
mod labels;
mod minidebug;
mod package;
mod places;
pub mod program;
mod public;
mod resolve;
mod scopes;
mod simplify;
#[allow(unsafe_code)] // Mapping a file is.
mod storage;
mod summary;
mod symbols;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use heapprof_profile::{MappingIndex, Profile, StringId};

use crate::answer_cache::AnswerCache;
use crate::answers::LocationLines;
pub use crate::demangle::{class_name, demangle};
use crate::elf::MappedRange;
use crate::files::WantedBinary;
pub use crate::labels::FileSymbols;
pub use crate::package::debug_package;
use crate::places::CandidatePaths;
use crate::resolve::{LocationQuestion, resolve};
pub use crate::simplify::{NameStyle, simplify_names};
pub use crate::summary::{FileSummary, SymbolSource, SymbolizeSummary, SymbolizeWarning};

/// Where [`symbolize`] looks, and for what.
#[derive(Clone, Debug, Default)]
pub struct SymbolizeOptions {
    /// Folders with debug files, searched before `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// What is added to each address before it is looked up. Use 0 for profiles whose addresses
    /// already lie within the call, as heapprof's own and pprof's do, and -1 for those that hold
    /// return addresses.
    pub adjust: i64,
    /// Also look up locations that already have lines.
    pub force: bool,
    /// Look only into mappings that are not marked as having functions, files or lines.
    pub unnamed_mappings: bool,
    /// Give an address in no symbol the name of the symbol before it, as tools do that use `nm`. In
    /// a file without its private symbols these names are guesses.
    pub nearest: bool,
    /// Give code without names the name of its file and where its function begins in that file,
    /// e.g. `libfoo.so+0x1234`. [`Profile::is_nameless`] recognizes such names. Such a location is
    /// looked up again the next time.
    pub number_functions: bool,
    /// The folder that the profiled machine's files are below.
    pub root: Option<PathBuf>,
    /// Open only files that everybody may read, in folders that everybody may enter: somebody names
    /// them who may have fewer rights than this process.
    pub public_files_only: bool,
    /// Files that the program ran, wherever their names lead by now, such as `/proc/PID/exe`. Such
    /// a file is used where the file of a mapping's name is another one, or none, and its build id
    /// is the mapping's.
    pub opened: Vec<PathBuf>,
}

/// Gives the locations of `profile` lines, as far as the mapped files are on this machine.
///
/// Locations without an answer keep the lines they have, or none.
pub fn symbolize(profile: &mut Profile, options: &SymbolizeOptions) -> SymbolizeSummary {
    run(profile, options, None, None).0
}

/// Symbolizes one profile after another, as [`symbolize`] does, and asks no file twice for the same
/// address. Addresses that are already known are answered without opening the file, and the summary
/// then names no file that was opened.
#[derive(Default)]
pub struct Symbolizer {
    options: SymbolizeOptions,
    known: AnswerCache,
}

impl Symbolizer {
    /// A symbolizer that uses the same options for all profiles.
    pub fn new(options: SymbolizeOptions) -> Self {
        Self {
            options,
            known: AnswerCache::default(),
        }
    }

    /// Uses other files as [`SymbolizeOptions::opened`] from now on.
    pub fn set_opened(&mut self, opened: Vec<PathBuf>) {
        self.options.opened = opened;
    }

    /// Symbolizes a profile as [`symbolize`] does.
    pub fn symbolize(&mut self, profile: &mut Profile) -> SymbolizeSummary {
        self.known.keep_within_limits();
        run(profile, &self.options, Some(&mut self.known), None).0
    }

    /// Symbolizes a profile, and opens no more files after `deadline`. Returns whether every file
    /// was asked.
    pub fn symbolize_until(&mut self, profile: &mut Profile, deadline: Instant) -> bool {
        self.known.keep_within_limits();
        run(
            profile,
            &self.options,
            Some(&mut self.known),
            Some(deadline),
        )
        .1
    }
}

/// Symbolizes a profile. Returns also whether every file was asked before the deadline.
fn run(
    profile: &mut Profile,
    options: &SymbolizeOptions,
    mut known: Option<&mut AnswerCache>,
    deadline: Option<Instant>,
) -> (SymbolizeSummary, bool) {
    let mut is_in_time = true;
    let mut summary = SymbolizeSummary::default();
    let mut answers = LocationLines::new(profile);
    let places = CandidatePaths::new(options);
    for file in files(profile, options, &mut summary) {
        let name = profile.text(file.name).to_string();
        let mut one = FileSummary {
            mappings: file.mappings,
            binary: None,
            debug_file: None,
            source: None,
            seen: file.questions.len(),
            resolved: 0,
            numbered: 0,
            warnings: Vec::new(),
            name,
        };
        // A file without a name may be open all the same.
        let has_name = is_file(&one.name);
        if (has_name || !options.opened.is_empty()) && !file.questions.is_empty() {
            let path = one.name.clone();
            let kept = path.strip_suffix(" (deleted)");
            let build_id = profile.text(file.build_id).to_string();
            let wanted = WantedBinary {
                path: match has_name {
                    true => Path::new(kept.unwrap_or(&path)),
                    false => Path::new(""),
                },
                build_id: bytes(&build_id),
                deleted: kept.is_some(),
            };
            let key = (path.clone(), build_id);
            let all = &file.questions;
            let before = known.as_ref().and_then(|known| known.source(&key));
            let left = known
                .as_ref()
                .map(|known| known.recall(&key, all, profile, &mut answers));
            let left = left.as_ref().unwrap_or(all);
            let is_late = deadline.is_some_and(|deadline| Instant::now() > deadline);
            is_in_time &= left.is_empty() || !is_late;
            if !left.is_empty() && !is_late {
                resolve(profile, &mut answers, &wanted, left, &places, &mut one);
                if let Some(known) = &mut known {
                    known.keep(key, left, profile, &answers, one.source);
                }
            }
            one.source = [before, one.source].into_iter().flatten().min();
            let named = |q: &&LocationQuestion| answers.is_named(q.location);
            one.resolved = all.iter().filter(named).count();
            let numbered = |q: &&LocationQuestion| answers.is_numbered(q.location);
            one.numbered = all.iter().filter(numbered).count();
        }
        if one.seen > 0 {
            summary.files.push(one);
        }
    }
    answers.write(profile);
    mark(profile, &summary, options.unnamed_mappings);
    (summary, is_in_time)
}

/// A file with all its mappings and the locations in them.
struct FileQuestions {
    name: StringId,
    build_id: StringId,
    mappings: Vec<MappingIndex>,
    questions: Vec<LocationQuestion>,
}

/// The files of the profile, with the questions to ask each of them.
fn files(
    profile: &Profile,
    options: &SymbolizeOptions,
    summary: &mut SymbolizeSummary,
) -> Vec<FileQuestions> {
    let mut files: Vec<FileQuestions> = Vec::new();
    let mut index = HashMap::new();
    let mut file_of = Vec::new();
    for (mapping, i) in profile.mapping.iter().zip(0..) {
        let file = *index
            .entry((mapping.filename, mapping.build_id))
            .or_insert_with(|| {
                files.push(FileQuestions {
                    name: mapping.filename,
                    build_id: mapping.build_id,
                    mappings: Vec::new(),
                    questions: Vec::new(),
                });
                files.len() - 1
            });
        files[file].mappings.push(MappingIndex(i));
        file_of.push(file);
    }
    for (location, i) in profile.location.iter().zip(0..) {
        if !profile.is_unnamed(location) && !options.force {
            summary.kept += 1;
            continue;
        }
        let Some(mapping) = location.mapping else {
            summary.unmapped += 1;
            continue;
        };
        let table = &profile.mapping[mapping.index()];
        let named = table.has_functions || table.has_filenames || table.has_line_numbers;
        if named && options.unnamed_mappings && !options.force {
            summary.kept += 1;
            continue;
        }
        files[file_of[mapping.index()]]
            .questions
            .push(LocationQuestion {
                location: i,
                place: MappedRange {
                    memory_start: table.memory_start,
                    memory_limit: table.memory_limit,
                    file_offset: table.file_offset,
                },
                address: location.address.wrapping_add_signed(options.adjust),
            });
    }
    files
}

/// The most bytes of a file's name.
const MAX_NAME_BYTES: usize = 4096;

/// Whether a name is that of a file. `[vdso]`, `[heap]`, `//anon`, `/memfd:…` and the like are not.
fn is_file(name: &str) -> bool {
    let made = ["[", "//anon", "/memfd:", "/dev/", "/SYSV", "anon_inode:"];
    let is_made = made.iter().any(|start| name.starts_with(start));
    (1..MAX_NAME_BYTES).contains(&name.len()) && (!is_made || name.starts_with("/dev/shm/"))
}

/// A build id as bytes. One that is not written in hex can't be compared, so it is `None`.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    if hex.is_empty() || !hex.is_ascii() {
        return None;
    }
    let digits = hex.as_bytes().chunks(2);
    let pair = |pair: &[u8]| match std::str::from_utf8(pair) {
        Ok(text) if text.len() == 2 && !text.starts_with('+') => u8::from_str_radix(text, 16).ok(),
        _ => None,
    };
    digits.map(pair).collect()
}

/// The build id of a file, in hex; `None` if it has none, or can't be read.
pub fn build_id(path: &Path) -> Option<String> {
    let storage = storage::FileStorage::new();
    let elf = elf::ElfBinary::open(path, &storage).ok()??;
    elf.build_id().map(elf::hex)
}

/// Marks in each mapping what is known about it now. If `only_resolved` is set, only mappings of
/// files in which something was found are marked.
fn mark(profile: &mut Profile, summary: &SymbolizeSummary, only_resolved: bool) {
    let resolved = summary.files.iter().filter(|file| file.resolved > 0);
    let resolved: Vec<MappingIndex> = resolved.flat_map(|f| f.mappings.clone()).collect();
    profile.mark_symbolized(|mapping| !only_resolved || resolved.contains(&mapping));
    // Debug information would have shown inlined frames if there had been any.
    for file in &summary.files {
        if file.source == Some(SymbolSource::Dwarf) {
            for mapping in &file.mappings {
                let mapping = &mut profile.mapping[mapping.index()];
                mapping.has_inline_frames |= mapping.has_functions;
            }
        }
    }
}
