//! Reads debug information with the addr2line crate: functions, lines and inlined frames, also from
//! split and shared DWARF files.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{EndianSlice, RunTimeEndian, SectionId};
use object::Object;

use crate::demangle::is_mangled;
use crate::elf::{ElfBinary, hex};
use crate::places::CandidatePaths;
use crate::scopes::ScopeCache;
use crate::storage::FileStorage;
use crate::summary::SymbolizeWarning;

type DwarfReader<'a> = EndianSlice<'a, RunTimeEndian>;

/// The debug information of one file.
pub(crate) struct DebugInfo<'a> {
    sections: Arc<gimli::Dwarf<DwarfReader<'a>>>,
    /// Context of the addr2line crate. It is `None` only while it is rebuilt, because two contexts
    /// at once would take twice the memory.
    context: Option<Context<DwarfReader<'a>>>,
    package: Option<gimli::DwarfPackage<DwarfReader<'a>>>,
    path: PathBuf,
    storage: &'a FileStorage,
    places: &'a CandidatePaths<'a>,
    scopes: ScopeCache<'a>,
    warnings: RefCell<Vec<SymbolizeWarning>>,
}

/// One function at an address, as debug information describes it.
pub(crate) struct DwarfFrame<'f> {
    /// The linker name; empty if it is not known.
    pub(crate) name: &'f str,
    /// Whether the name may be only the last part of the function's name. Debug information has
    /// only this part for C++ and Rust functions without a linker name, which are private to their
    /// unit. The other parts come from the entries around the function.
    pub(crate) is_short: bool,
    pub(crate) file: &'f str,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// Reason why debug information can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DwarfDamage {
    #[error("{section}: {error}")]
    Section {
        section: &'static str,
        error: String,
    },
    #[error("debug information: {0}")]
    Dwarf(#[from] gimli::Error),
}

impl<'a> DebugInfo<'a> {
    pub(crate) fn new(
        elf: &ElfBinary<'a>,
        storage: &'a FileStorage,
        places: &'a CandidatePaths<'a>,
    ) -> Result<Self, DwarfDamage> {
        let mut warnings = Vec::new();
        let mut dwarf = gimli::Dwarf::load(|id| load(elf, Some(id.name()), id, storage))?;
        if let Some(shared) = load_shared(elf, storage, places, &mut warnings) {
            dwarf.load_sup(|id| load(&shared, Some(id.name()), id, storage))?;
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let sections = Arc::new(dwarf);
        Ok(Self {
            context: Some(Context::from_arc_dwarf(sections.clone())?),
            sections,
            package: package(elf, storage),
            path: elf.path.clone(),
            storage,
            places,
            scopes: ScopeCache::default(),
            warnings: RefCell::new(warnings),
        })
    }

    /// Discards the data that was parsed from compilation units so far. Inflated sections stay.
    pub(crate) fn forget(&mut self) -> Result<(), gimli::Error> {
        (self.context, self.scopes) = (None, ScopeCache::default());
        self.context = Some(Context::from_arc_dwarf(self.sections.clone())?);
        Ok(())
    }

    /// Calls `each` for the frames at an address, innermost first.
    pub(crate) fn frames(
        &self,
        address: u64,
        mut each: impl FnMut(DwarfFrame<'_>),
    ) -> Result<(), gimli::Error> {
        let Some(context) = &self.context else {
            return Ok(());
        };
        let mut frames = self.load_result(context.find_frames(address))?;
        while let Some(frame) = frames.next()? {
            let name = frame.function.as_ref().map(|f| f.raw_name()).transpose()?;
            let name = name.as_deref().unwrap_or_default();
            let language = frame.function.as_ref().and_then(|f| f.language);
            let location = frame.location.as_ref();
            // In split debug information, only the split part names the language.
            let is_short = language.is_none_or(mangles) && !is_mangled(name);
            let entry = frame.dw_die_offset.filter(|_| is_short && !name.is_empty());
            let whole = entry.and_then(|entry| self.qualified_name(context, address, entry, name));
            each(DwarfFrame {
                name: whole.as_deref().unwrap_or(name),
                is_short,
                file: location.and_then(|l| l.file).unwrap_or_default(),
                line: location.and_then(|l| l.line).unwrap_or_default(),
                column: location.and_then(|l| l.column).unwrap_or_default(),
            });
        }
        Ok(())
    }

    /// Returns the name of a function with the scopes around it.
    fn qualified_name(
        &self,
        context: &Context<DwarfReader<'a>>,
        address: u64,
        entry: gimli::UnitOffset,
        name: &str,
    ) -> Option<String> {
        let unit = self.load_result(context.find_dwarf_and_unit(address))?;
        self.scopes.qualified_name(unit, entry, name)
    }

    /// Completes a lookup, and returns its result. If the lookup needs debug information that the
    /// compiler left in another file, that file is loaded.
    fn load_result<L: LookupContinuation<Buf = DwarfReader<'a>>>(
        &self,
        mut result: LookupResult<L>,
    ) -> L::Output {
        loop {
            match result {
                LookupResult::Output(output) => return output,
                LookupResult::Load { load, continuation } => {
                    result = continuation.resume(self.split(&load));
                }
            }
        }
    }

    /// Returns and removes the collected warnings about missing or damaged parts.
    pub(crate) fn warnings(&self) -> Vec<SymbolizeWarning> {
        self.warnings.take()
    }

    /// Loads the debug information of a unit that the compiler left in another file (split DWARF).
    fn split(
        &self,
        wanted: &SplitDwarfLoad<DwarfReader<'a>>,
    ) -> Option<Arc<gimli::Dwarf<DwarfReader<'a>>>> {
        if let Some(package) = &self.package
            && let Ok(Some(dwarf)) = package.find_cu(wanted.dwo_id, &wanted.parent)
        {
            return Some(Arc::new(dwarf));
        }
        let path = |reader: &Option<DwarfReader<'a>>| {
            let bytes = reader.as_ref().map(|r| r.slice()).unwrap_or_default();
            Path::new(OsStr::from_bytes(bytes))
        };
        let name = path(&wanted.comp_dir).join(path(&wanted.path));
        for place in self.places.by_reference(&self.path, &name) {
            if let Ok(Some(elf)) = ElfBinary::open(&place, self.storage)
                && let Some(dwarf) = self.split_file(&elf, wanted)
            {
                return Some(Arc::new(dwarf));
            }
        }
        let mut warnings = self.warnings.borrow_mut();
        // One warning is enough: if one file is missing, thousands are.
        let said = |w: &SymbolizeWarning| matches!(w, SymbolizeWarning::Elsewhere { .. });
        if !warnings.iter().any(said) {
            warnings.push(SymbolizeWarning::Elsewhere {
                file: self.path.clone(),
                missing: name.display().to_string(),
            });
        }
        None
    }

    fn split_file(
        &self,
        elf: &ElfBinary<'a>,
        wanted: &SplitDwarfLoad<DwarfReader<'a>>,
    ) -> Option<gimli::Dwarf<DwarfReader<'a>>> {
        let mut dwarf = gimli::Dwarf::load(|id| load(elf, id.dwo_name(), id, self.storage)).ok()?;
        let header = dwarf.units().next().ok()??;
        let unit = dwarf.unit(header).ok()?;
        if unit.dwo_id != Some(wanted.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&wanted.parent);
        Some(dwarf)
    }
}

fn mangles(language: gimli::DwLang) -> bool {
    language == gimli::DW_LANG_C_plus_plus
        || language == gimli::DW_LANG_C_plus_plus_03
        || language == gimli::DW_LANG_C_plus_plus_11
        || language == gimli::DW_LANG_C_plus_plus_14
        || language == gimli::DW_LANG_C_plus_plus_17
        || language == gimli::DW_LANG_C_plus_plus_20
        || language == gimli::DW_LANG_Rust
}

fn endian(elf: &ElfBinary<'_>) -> RunTimeEndian {
    match elf.object.is_little_endian() {
        true => RunTimeEndian::Little,
        false => RunTimeEndian::Big,
    }
}

fn load<'a>(
    elf: &ElfBinary<'a>,
    name: Option<&'static str>,
    id: SectionId,
    storage: &'a FileStorage,
) -> Result<DwarfReader<'a>, DwarfDamage> {
    use SectionId::{DebugLoc, DebugLocLists, DebugMacinfo, DebugMacro, DebugNames, DebugTypes};
    let empty = EndianSlice::new(&[][..], endian(elf));
    // Variables, macros and types are not needed for addresses, and inflating them would take
    // memory. A package must have them, because its index refers to them.
    let is_split = name != Some(id.name());
    let aside = !is_split
        && matches!(
            id,
            DebugLoc | DebugLocLists | DebugMacinfo | DebugMacro | DebugNames | DebugTypes
        );
    let Some(section) = name.filter(|_| !aside) else {
        return Ok(empty);
    };
    match elf.section(section, storage) {
        Ok(bytes) => Ok(EndianSlice::new(bytes, endian(elf))),
        Err(error) => Err(DwarfDamage::Section { section, error }),
    }
}

/// Opens the file to which dwz moved the parts that several debug files share.
fn load_shared<'a>(
    elf: &ElfBinary<'a>,
    storage: &'a FileStorage,
    places: &CandidatePaths<'_>,
    warnings: &mut Vec<SymbolizeWarning>,
) -> Option<ElfBinary<'a>> {
    let (name, build_id) = elf.object.gnu_debugaltlink().ok()??;
    let path = Path::new(OsStr::from_bytes(name));
    let mut candidates = places.by_reference(&elf.path, path);
    // The link is relative to the debug file's real path.
    if let Ok(real) = std::fs::canonicalize(&elf.path) {
        candidates.extend(places.by_reference(&real, path));
    }
    candidates.extend(places.by_build_id(Some(build_id)));
    for candidate in candidates {
        match ElfBinary::open(&candidate, storage) {
            Ok(Some(shared)) if shared.build_id() == Some(build_id) => return Some(shared),
            _ => {}
        }
    }
    warnings.push(SymbolizeWarning::Elsewhere {
        file: elf.path.clone(),
        missing: format!("{} (build id {})", path.display(), hex(build_id)),
    });
    None
}

/// Opens the package (`.dwp`) beside the binary, which contains all its split files.
fn package<'a>(
    elf: &ElfBinary<'a>,
    storage: &'a FileStorage,
) -> Option<gimli::DwarfPackage<DwarfReader<'a>>> {
    let mut path = elf.path.clone().into_os_string();
    path.push(".dwp");
    let package = ElfBinary::open(Path::new(&path), storage).ok()??;
    let empty = EndianSlice::new(&[][..], endian(&package));
    let section = |id: SectionId| load(&package, id.dwo_name(), id, storage);
    gimli::DwarfPackage::load(section, empty).ok()
}
