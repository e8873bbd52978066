//! Functions, files, lines and inlined frames for the addresses of a profile, from ELF files and
//! their debug information.
//!
//! A collector writes addresses and the files that were mapped around them. [`symbolize`] opens
//! each of these files once, with its debug file where it has one (by build id, `.gnu_debuglink` or
//! `--debug-dir`), asks it for all addresses, and closes it before the next. A [`Symbolizer`] keeps
//! what it learned for the next profile. A file whose build id is another one than the profile's is
//! refused. Damaged files are warnings, never panics: the next source is tried, symbol tables last.
//!
//! The crate knows the profile and symbol files; it knows nothing of SQLite and the command line.
#![deny(unsafe_code)]

mod answers;
mod demangle;
mod dwarf;
mod elf;
mod files;
mod function_starts;
mod itanium;
mod known;
mod minidebug;
mod package;
mod places;
pub mod program;
mod resolve;
mod scopes;
mod simplify;
#[allow(unsafe_code)] // Mapping a file is.
mod storage;
mod summary;
mod symbols;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use heapprof_profile::{MappingIndex, Profile, StringId};

use crate::answers::Answers;
pub use crate::demangle::demangle;
use crate::elf::Place;
use crate::files::Wanted;
use crate::known::Known;
pub use crate::package::debug_package;
use crate::places::Places;
use crate::resolve::{Question, resolve};
pub use crate::simplify::{NameStyle, simplify_names};
pub use crate::summary::{FileSummary, Source, Summary, Warning};

/// Where to look, and for what.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folders with debug files, searched before `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Added to each address before it is looked up. 0 for profiles whose addresses lie within the
    /// call already, as heapprof's own and pprof's do; -1 for those that hold return addresses.
    pub adjust: i64,
    /// Look up locations that have lines already, too.
    pub force: bool,
    /// Look only into mappings that do not say that something in them has a name.
    pub unnamed_mappings: bool,
    /// Take an address in no symbol for the symbol's before it, as tools do that look into `nm`.
    /// The names of a file without its private symbols are guesses then.
    pub nearest: bool,
    /// Give code without names the name of its file and where its function begins in that,
    /// `libfoo.so+0x1234`, as [`Profile::is_nameless`] knows it. Such a location is asked for again
    /// another time.
    pub number_functions: bool,
    /// The profiled machine's files are below this folder.
    pub root: Option<PathBuf>,
}

/// Gives the locations of `profile` lines, as far as the files that were mapped are here.
///
/// Locations without an answer keep the lines they have, or none.
pub fn symbolize(profile: &mut Profile, options: &Options) -> Summary {
    run(profile, options, None)
}

/// Does what [`symbolize`] does for one profile after another, and asks no file a second time for
/// an address. What is known already is answered without opening the file, so its summary names
/// none.
#[derive(Default)]
pub struct Symbolizer {
    options: Options,
    known: Known,
}

impl Symbolizer {
    /// For profiles that all want the same.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            known: Known::default(),
        }
    }

    /// As [`symbolize`].
    pub fn symbolize(&mut self, profile: &mut Profile) -> Summary {
        run(profile, &self.options, Some(&mut self.known))
    }
}

fn run(profile: &mut Profile, options: &Options, mut known: Option<&mut Known>) -> Summary {
    let mut summary = Summary::default();
    let mut answers = Answers::new(profile);
    let places = Places::new(options);
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
        if is_file(&one.name) && !file.questions.is_empty() {
            let path = one.name.clone();
            let kept = path.strip_suffix(" (deleted)");
            let build_id = profile.text(file.build_id).to_string();
            let wanted = Wanted {
                path: Path::new(kept.unwrap_or(&path)),
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
            if !left.is_empty() {
                resolve(profile, &mut answers, &wanted, left, &places, &mut one);
                if let Some(known) = &mut known {
                    known.keep(key, left, profile, &answers, one.source);
                }
            }
            one.source = [before, one.source].into_iter().flatten().min();
            let named = |q: &&Question| answers.is_named(q.location);
            one.resolved = all.iter().filter(named).count();
            let numbered = |q: &&Question| answers.is_numbered(q.location);
            one.numbered = all.iter().filter(numbered).count();
        }
        if one.seen > 0 {
            summary.files.push(one);
        }
    }
    answers.write(profile);
    mark(profile, &summary, options.unnamed_mappings);
    summary
}

/// A file with all its mappings and the locations in them.
struct MappedFile {
    name: StringId,
    build_id: StringId,
    mappings: Vec<MappingIndex>,
    questions: Vec<Question>,
}

/// The files of the profile with what is to be asked of each.
fn files(profile: &Profile, options: &Options, summary: &mut Summary) -> Vec<MappedFile> {
    let mut files: Vec<MappedFile> = Vec::new();
    let mut index = HashMap::new();
    let mut file_of = Vec::new();
    for (mapping, i) in profile.mapping.iter().zip(0..) {
        let file = *index
            .entry((mapping.filename, mapping.build_id))
            .or_insert_with(|| {
                files.push(MappedFile {
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
        files[file_of[mapping.index()]].questions.push(Question {
            location: i,
            place: Place {
                memory_start: table.memory_start,
                memory_limit: table.memory_limit,
                file_offset: table.file_offset,
            },
            address: location.address.wrapping_add_signed(options.adjust),
        });
    }
    files
}

/// Not `[vdso]`, `[heap]`, `//anon`, `/memfd:…` and the like, which no file stands behind.
fn is_file(name: &str) -> bool {
    let made = ["[", "//anon", "/memfd:", "/dev/", "/SYSV", "anon_inode:"];
    let is_made = made.iter().any(|start| name.starts_with(start));
    !name.is_empty() && (!is_made || name.starts_with("/dev/shm/"))
}

/// A build id as bytes; what is not written in hex can't be compared with.
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

/// Says in each mapping what is known of it now, or in those alone that something was found in.
fn mark(profile: &mut Profile, summary: &Summary, only_resolved: bool) {
    let resolved = summary.files.iter().filter(|file| file.resolved > 0);
    let resolved: Vec<MappingIndex> = resolved.flat_map(|f| f.mappings.clone()).collect();
    profile.mark_symbolized(|mapping| !only_resolved || resolved.contains(&mapping));
    // Debug information would have told of inlined frames, had there been any.
    for file in &summary.files {
        if file.source == Some(Source::Dwarf) {
            for mapping in &file.mappings {
                let mapping = &mut profile.mapping[mapping.index()];
                mapping.has_inline_frames |= mapping.has_functions;
            }
        }
    }
}
