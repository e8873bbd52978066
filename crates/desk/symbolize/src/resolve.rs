//! Looks up the addresses of one file in debug information and symbol tables, the best source of
//! names first, until each address has a name.

use heapprof_profile::Profile;

use crate::answers::LocationLines;
use crate::dwarf::DebugInfo;
use crate::elf::{ElfBinary, MappedRange};
use crate::files::{MatchedFiles, WantedBinary};
use crate::function_starts::FunctionStarts;
use crate::minidebug;
use crate::places::CandidatePaths;
use crate::storage::FileStorage;
use crate::summary::{FileSummary, SymbolSource, SymbolizeWarning};
use crate::symbols::SortedSymbols;

/// A location to look up in a file.
#[derive(Clone, Copy)]
pub(crate) struct LocationQuestion {
    /// The index of the location in the profile.
    pub(crate) location: u32,
    pub(crate) place: MappedRange,
    /// The address to look up. [`SymbolizeOptions::adjust`](crate::SymbolizeOptions) is already
    /// added.
    pub(crate) address: u64,
}

/// A location with its virtual address in the file.
struct AddressProbe {
    location: u32,
    address: u64,
}

/// Number of addresses after which the data parsed from debug information is discarded. It would
/// otherwise grow with each compilation unit that is read.
pub(crate) const MAX_ADDRESSES_PER_CONTEXT: usize = 1 << 14;

/// Finds the lines of locations in one file.
pub(crate) fn resolve(
    profile: &mut Profile,
    answers: &mut LocationLines,
    wanted: &WantedBinary<'_>,
    questions: &[LocationQuestion],
    places: &CandidatePaths<'_>,
    summary: &mut FileSummary,
) {
    let storage = FileStorage::with_options(places.options());
    let mut found = MatchedFiles::find(wanted, places, &storage);
    summary.warnings.append(&mut found.warnings);
    summary.binary = found.binary.as_ref().map(|elf| elf.path.clone());
    summary.debug_file = found.debug.as_ref().map(|elf| elf.path.clone());
    let Some(layout) = found.binary.as_ref().or(found.debug.as_ref()) else {
        if summary.warnings.is_empty() && !wanted.path.as_os_str().is_empty() {
            let file = summary.name.clone();
            summary.warnings.push(SymbolizeWarning::Missing { file });
        }
        return;
    };
    let mut probes: Vec<AddressProbe> = questions
        .iter()
        .filter_map(|q| {
            let address = layout.virtual_address(q.place, q.address)?;
            Some(AddressProbe {
                location: q.location,
                address,
            })
        })
        .collect();
    probes.sort_unstable_by_key(|probe| (probe.address, probe.location));
    let mut asker = FileResolver {
        profile,
        answers,
        summary,
        probes,
        nearest: places.nearest(),
    };
    let (binary, debug) = (found.binary.as_ref(), found.debug.as_ref());
    let shift = shift(binary, debug);
    let whole = binary.filter(|elf| elf.has_section(".debug_info"));
    match (whole, debug) {
        (Some(elf), _) => asker.dwarf(elf, 0, &storage, places),
        (None, Some(elf)) => asker.dwarf(elf, shift, &storage, places),
        (None, None) => {}
    }
    if let Some(elf) = debug {
        asker.symbols(elf, shift, false, SymbolSource::SymbolTable);
    }
    if let Some(elf) = binary {
        asker.symbols(elf, 0, false, SymbolSource::SymbolTable);
        asker.mini_debug_info(elf, &storage);
        asker.symbols(elf, 0, true, SymbolSource::DynamicSymbols);
    }
    if let (Some(elf), true) = (binary, places.numbers_functions()) {
        asker.number(elf, &storage);
    }
    let answers = &*asker.answers;
    let named = |q: &&LocationQuestion| answers.is_named(q.location);
    summary.resolved = questions.iter().filter(named).count();
    if summary.resolved == 0 && summary.warnings.is_empty() {
        let file = summary.name.clone();
        let debug_file = summary.debug_file.clone();
        summary
            .warnings
            .push(SymbolizeWarning::NoSymbols { file, debug_file });
    }
}

/// Returns the difference between addresses in the debug file and addresses in the binary. The
/// difference is 0 unless prelink moved the binary.
pub(crate) fn shift(binary: Option<&ElfBinary<'_>>, debug: Option<&ElfBinary<'_>>) -> u64 {
    let base = |elf: Option<&ElfBinary<'_>>| elf.and_then(ElfBinary::base);
    match (base(binary), base(debug)) {
        (Some(binary), Some(debug)) => debug.wrapping_sub(binary),
        _ => 0,
    }
}

struct FileResolver<'p> {
    profile: &'p mut Profile,
    answers: &'p mut LocationLines,
    summary: &'p mut FileSummary,
    probes: Vec<AddressProbe>,
    nearest: bool,
}

impl FileResolver<'_> {
    fn dwarf<'a>(
        &mut self,
        elf: &ElfBinary<'a>,
        shift: u64,
        storage: &'a FileStorage,
        places: &'a CandidatePaths<'a>,
    ) {
        if !elf.has_section(".debug_info") {
            return;
        }
        let mut dwarf = match DebugInfo::new(elf, storage, places) {
            Ok(dwarf) => dwarf,
            Err(error) => return self.warn_damaged(elf, error.to_string()),
        };
        let mut damage = None;
        for (i, probe) in self.probes.iter().enumerate() {
            if i > 0 && i % MAX_ADDRESSES_PER_CONTEXT == 0 && dwarf.forget().is_err() {
                // This does not happen: data that was read once can be read again.
                break;
            }
            let address = probe.address.wrapping_add(shift);
            // addr2line looks up the range up to the next address, and the last address has no next
            // one.
            if address == u64::MAX {
                continue;
            }
            self.answers.frames(self.profile, probe.location, |each| {
                if let Err(error) = dwarf.frames(address, each) {
                    damage = Some(format!("debug information: {error}"));
                }
            });
            if self.answers.is_named(probe.location) {
                self.summary.source.get_or_insert(SymbolSource::Dwarf);
            }
        }
        self.summary.warnings.extend(dwarf.warnings());
        if let Some(what) = damage {
            self.warn_damaged(elf, what);
        }
    }

    fn symbols(&mut self, elf: &ElfBinary<'_>, shift: u64, is_dynamic: bool, source: SymbolSource) {
        let settled = |probe: &AddressProbe| self.answers.is_settled(probe.location);
        if self.probes.iter().all(settled) {
            return;
        }
        let symbols = SortedSymbols::functions(elf, is_dynamic);
        for probe in &self.probes {
            if self.answers.is_settled(probe.location) {
                continue;
            }
            let address = probe.address.wrapping_add(shift);
            // A guess is better than no name, and worse than any real name.
            let nearest = self.nearest && !self.answers.is_named(probe.location);
            if let Some(name) = symbols.find(elf, address, nearest) {
                self.answers.name(self.profile, probe.location, name);
                self.summary.source.get_or_insert(source);
            }
        }
    }

    fn mini_debug_info<'a>(&mut self, elf: &ElfBinary<'a>, storage: &'a FileStorage) {
        let table = match elf.section(".gnu_debugdata", storage) {
            Ok([]) => return,
            Ok(section) => minidebug::inflate(section),
            Err(error) => Err(format!(".gnu_debugdata: {error}")),
        };
        match table {
            Ok(table) => match ElfBinary::parse(&elf.path, storage.keep(table)) {
                Ok(inner) => self.symbols(&inner, 0, false, SymbolSource::MiniDebugInfo),
                Err(error) => self.warn_damaged(elf, format!(".gnu_debugdata: {error}")),
            },
            Err(what) => self.warn_damaged(elf, what),
        }
    }

    /// Sets names for code without symbols. A name consists of the file and the start of the
    /// function, so it is the same in each run and on each machine.
    fn number<'a>(&mut self, elf: &ElfBinary<'a>, storage: &'a FileStorage) {
        let answers = &*self.answers;
        if self.probes.iter().all(|p| answers.is_named(p.location)) {
            return;
        }
        let starts = FunctionStarts::new(elf, storage);
        let file = self.short_name();
        for probe in &self.probes {
            if !self.answers.is_named(probe.location) {
                let start = starts.find(probe.address).unwrap_or(probe.address);
                let name = format!("{file}+{start:#x}");
                self.answers.number(self.profile, probe.location, &name);
            }
        }
    }

    /// Returns the file's name without its folders. If another file in the profile has the same
    /// name, the last folder is included.
    fn short_name(&self) -> String {
        let path = self.summary.name.strip_suffix(" (deleted)");
        let path = path.unwrap_or(&self.summary.name);
        let file = path.rsplit('/').next().unwrap_or(path);
        let others = self
            .profile
            .mapping
            .iter()
            .map(|m| self.profile.text(m.filename));
        let is_other =
            |other: &str| other != self.summary.name && other.rsplit('/').next() == Some(file);
        let folder = path.rsplit('/').nth(1).filter(|folder| !folder.is_empty());
        match (folder, others.into_iter().any(is_other)) {
            (Some(folder), true) => format!("{folder}/{file}"),
            _ => file.to_string(),
        }
    }

    fn warn_damaged(&mut self, elf: &ElfBinary<'_>, what: String) {
        let file = elf.path.clone();
        self.summary
            .warnings
            .push(SymbolizeWarning::Damaged { file, what });
    }
}
