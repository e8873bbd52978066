//! Finds functions, files, lines and inlined frames for the addresses of a profile, from ELF files
//! and their debug information.
//!
//! A profile has addresses, and the mapped files that contain them. [`symbolize`] opens each of
//! these files once, and looks up all addresses in it before it opens the next file. If a file has
//! a debug file, it is opened, too. Debug files are found by build id, `.gnu_debuglink` or
//! `--debug-dir`. A [`Symbolizer`] keeps the lines of one profile, and uses them for the next
//! profiles, too. A file whose build id differs from the profile's is refused. A damaged file
//! causes a warning, never a panic, and the next source of names is tried. Symbol tables are the
//! last source.
//!
//! The crate knows profiles and symbol files, but neither SQLite nor the command line.
#![deny(unsafe_code)]

pub mod allocators;
mod answer_cache;
mod answers;
pub mod code;
mod demangle;
mod dwarf;
mod elf;
mod files;
mod function_starts;
mod itanium;
mod labels;
pub mod layout;
mod minidebug;
mod package;
mod places;
pub mod program;
mod public_file;
mod resolve;
mod scopes;
mod simplify;
#[allow(unsafe_code)] // Mapping a file needs it.
mod storage;
mod summary;
mod symbols;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use heapprof_profile::{MappingIndex, Profile, StringId};

use crate::answer_cache::AnswerCache;
use crate::answers::LocationLines;
pub use crate::demangle::{class_name, demangle, demangle_names};
use crate::elf::MappedRange;
use crate::files::WantedBinary;
pub use crate::labels::FileSymbols;
pub use crate::package::debug_package;
use crate::places::CandidatePaths;
use crate::resolve::{LocationQuestion, resolve};
pub use crate::simplify::{NameStyle, demangle_in_style, simplify_names};
pub use crate::summary::{FileSummary, SymbolSource, SymbolizeSummary, SymbolizeWarning};

/// Options of [`symbolize`]: where it searches for files, and which locations it looks up.
#[derive(Clone, Debug, Default)]
pub struct SymbolizeOptions {
    /// Folders with debug files, searched before `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Offset that is added to each address before it is looked up. Use 0 for profiles with
    /// addresses inside the calls, as in heapprof and pprof, and -1 for profiles with return
    /// addresses.
    pub adjust: i64,
    /// Whether locations that already have lines are looked up, too.
    pub force: bool,
    /// Whether locations are looked up only in mappings that are not marked as having functions,
    /// files or lines.
    pub unnamed_mappings: bool,
    /// Whether an address outside all symbols gets the name of the symbol before it, as in tools
    /// that use `nm`. If the file lacks its private symbols, these names are guesses.
    pub nearest: bool,
    /// Whether code without names is named by its file and the start of its function in that file,
    /// e.g. `libfoo.so+0x1234`. [`Profile::is_nameless`] recognizes such names. Locations with such
    /// names are looked up again the next time.
    pub number_functions: bool,
    /// The folder on this machine that contains the profiled machine's files.
    pub root: Option<PathBuf>,
    /// Whether files are opened only if every user may read them and enter their folders. This is
    /// for file names from a process that may have fewer rights than the current process.
    pub public_files_only: bool,
    /// Paths such as `/proc/PID/exe`, which lead to the program's files even after the files were
    /// renamed or replaced. If the name of a mapping leads to no file or to a different file, the
    /// file in this list with the mapping's build id is used.
    pub opened: Vec<PathBuf>,
}

/// Adds lines to the locations of `profile` whose mapped files are on this machine.
///
/// Locations for which nothing is found keep the lines they have, or none.
pub fn symbolize(profile: &mut Profile, options: &SymbolizeOptions) -> SymbolizeSummary {
    run(profile, options, None, None).0
}

/// Symbolizes several profiles, as [`symbolize`] does, but looks up each address of a file only
/// once. If all addresses of a file are known, the file is not opened, and the summary names no
/// opened file for it.
#[derive(Default)]
pub struct Symbolizer {
    options: SymbolizeOptions,
    known: AnswerCache,
}

impl Symbolizer {
    /// Returns a symbolizer that uses the same options for all profiles.
    pub fn new(options: SymbolizeOptions) -> Self {
        Self {
            options,
            known: AnswerCache::default(),
        }
    }

    /// Replaces the list [`SymbolizeOptions::opened`].
    pub fn set_opened(&mut self, opened: Vec<PathBuf>) {
        self.options.opened = opened;
    }

    /// Symbolizes a profile as [`symbolize`] does.
    pub fn symbolize(&mut self, profile: &mut Profile) -> SymbolizeSummary {
        self.known.keep_within_limits();
        run(profile, &self.options, Some(&mut self.known), None).0
    }

    /// Symbolizes a profile, but opens no file after `deadline`. Returns false if a file was
    /// skipped.
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

/// Symbolizes a profile. The returned flag is false if a file was skipped because of the deadline.
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
        // A file without a name may be one of the opened files.
        let has_name = is_file(&one.name);
        if (has_name || !options.opened.is_empty()) && !file.questions.is_empty() {
            let path = one.name.clone();
            let build_id = profile.text(file.build_id).to_string();
            let wanted = WantedBinary::new(if has_name { &path } else { "" }, &build_id);
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

/// A file of a profile, with its mappings and the locations to look up in it.
struct FileQuestions {
    name: StringId,
    build_id: StringId,
    mappings: Vec<MappingIndex>,
    questions: Vec<LocationQuestion>,
}

/// Returns the files of the profile, each with the locations to look up in it.
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

/// Length limit of a file name in bytes. Names of this length or more are ignored.
const MAX_NAME_BYTES: usize = 4096;

/// Whether the name of a mapping is the name of a file, unlike `[vdso]`, `[heap]`, `//anon` or
/// `/memfd:…`.
fn is_file(name: &str) -> bool {
    let made = ["[", "//anon", "/memfd:", "/dev/", "/SYSV", "anon_inode:"];
    let is_made = made.iter().any(|start| name.starts_with(start));
    (1..MAX_NAME_BYTES).contains(&name.len()) && (!is_made || name.starts_with("/dev/shm/"))
}

/// Returns the build id of a file in hex; `None` if it has none, or can't be read.
pub fn build_id(path: &Path) -> Option<String> {
    let storage = storage::FileStorage::new();
    let elf = elf::ElfBinary::open(path, &storage).ok()??;
    elf.build_id().map(elf::hex)
}

/// Marks in each mapping which information its locations have: functions, files, lines, inlined
/// frames. With `only_resolved`, only the mappings of files in which a name was found are marked.
fn mark(profile: &mut Profile, summary: &SymbolizeSummary, only_resolved: bool) {
    let resolved = summary.files.iter().filter(|file| file.resolved > 0);
    let resolved: Vec<MappingIndex> = resolved.flat_map(|f| f.mappings.clone()).collect();
    profile.mark_symbolized(|mapping| !only_resolved || resolved.contains(&mapping));
    // Debug information shows all inlined frames, so a file with it has them all.
    for file in &summary.files {
        if file.source == Some(SymbolSource::Dwarf) {
            for mapping in &file.mappings {
                let mapping = &mut profile.mapping[mapping.index()];
                mapping.has_inline_frames |= mapping.has_functions;
            }
        }
    }
}
