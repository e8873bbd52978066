//! Reads the machine code of a mapping's file: the functions around addresses, their bytes and
//! lines, and the names of what they call.
//!
//! Symbol tables are sorted once for all addresses that are asked for, and nothing is copied from
//! them but addresses and the names that are returned.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;

use heapprof_profile::{Mapping, MappingIndex, Profile};
use object::{
    Architecture, Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget, elf,
};

use crate::demangle::demangle;
use crate::dwarf::DebugInfo;
use crate::elf::{ElfBinary, MappedRange};
use crate::files::{MatchedFiles, WantedBinary};
use crate::function_starts::FunctionStarts;
use crate::places::CandidatePaths;
use crate::resolve::{MAX_ADDRESSES_PER_CONTEXT, shift};
use crate::storage::FileStorage;
use crate::summary::SymbolizeWarning;
use crate::symbols::{SortedSymbols, SymbolRange};
use crate::{SymbolizeOptions, is_file, minidebug};

/// A kind of processor whose instructions can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeProcessor {
    /// x86 with 32 bits.
    X86,
    /// x86 with 64 bits.
    X86_64,
    /// ARM with 64 bits.
    Aarch64,
}

/// Reason why the code of a file can't be read. It displays as one line that begins with the file's
/// name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The mapping is not one of a file.
    #[error("{file:?}: is not the name of a file, so it has no code to read")]
    NoFile {
        /// The name of the mapping.
        file: String,
    },
    /// The file is not on this machine.
    #[error("{file}: there is no such file, and code is read from it")]
    Missing {
        /// The file's name in the profile.
        file: String,
    },
    /// A debug file was found, but not the file itself.
    #[error("{file}: only its debug file is here, which has no code")]
    OnlyDebugFile {
        /// The file's name in the profile.
        file: String,
    },
    /// A file with the name was found, but can't be used.
    #[error(transparent)]
    Refused(SymbolizeWarning),
    /// The file is for a processor whose instructions are not known here.
    #[error("{file}: is for {processor}; instructions of x86-64, x86 and aarch64 can be read")]
    OtherProcessor {
        /// The path of the file.
        file: String,
        /// The name of the processor.
        processor: String,
    },
}

/// A function of a file: its virtual addresses and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// The virtual address of its first byte.
    pub start: u64,
    /// The virtual address behind its last byte.
    pub end: u64,
    /// The source name of its symbol; `None` if only unwind tables know the function.
    pub name: Option<String>,
}

/// A function at an address, possibly an inlined one.
#[derive(Clone, Copy, Debug)]
pub struct CodeFrame<'f> {
    /// The function's linker name, or its source name if it has none; empty if it is not known.
    pub function: &'f str,
    /// The source file; empty if it is not known.
    pub file: &'f str,
    /// The line in the file; 0 if it is not known.
    pub line: u32,
}

/// The opened file of a mapping, with its debug file.
pub struct CodeFile<'a> {
    binary: ElfBinary<'a>,
    debug: Option<ElfBinary<'a>>,
    processor: CodeProcessor,
    storage: &'a FileStorage,
    lines: RefCell<Option<DebugInfo<'a>>>,
    /// What is added to an address of the binary to get that of the debug information.
    lines_shift: u64,
    asked: Cell<usize>,
    has_build_id: bool,
}

/// Opens the file of a mapping, and passes it to `read`.
pub fn read_code<T>(
    profile: &Profile,
    mapping: MappingIndex,
    options: &SymbolizeOptions,
    read: impl FnOnce(&CodeFile<'_>) -> T,
) -> Result<T, CodeError> {
    let mapping = &profile.mapping[mapping.index()];
    let file = profile.text(mapping.filename);
    if !is_file(file) {
        return Err(CodeError::NoFile { file: file.into() });
    }
    let wanted = WantedBinary::new(file, profile.text(mapping.build_id));
    let (places, storage) = (
        CandidatePaths::new(options),
        FileStorage::with_options(options),
    );
    let found = MatchedFiles::find(&wanted, &places, &storage);
    let Some(binary) = found.binary else {
        let file = file.to_string();
        return Err(match (found.warnings.into_iter().next(), found.debug) {
            (Some(warning), _) => CodeError::Refused(warning),
            (None, Some(_)) => CodeError::OnlyDebugFile { file },
            (None, None) => CodeError::Missing { file },
        });
    };
    let processor = match binary.object.architecture() {
        Architecture::I386 => CodeProcessor::X86,
        Architecture::X86_64 | Architecture::X86_64_X32 => CodeProcessor::X86_64,
        Architecture::Aarch64 | Architecture::Aarch64_Ilp32 => CodeProcessor::Aarch64,
        other => {
            return Err(CodeError::OtherProcessor {
                file: binary.path.display().to_string(),
                processor: format!("{other:?}"),
            });
        }
    };
    let debug_shift = shift(Some(&binary), found.debug.as_ref());
    let (source, lines_shift) = match &found.debug {
        _ if binary.has_section(".debug_info") => (&binary, 0),
        Some(debug) => (debug, debug_shift),
        None => (&binary, 0),
    };
    // Damaged lines count as missing: the instructions are there without them.
    let lines = match source.has_section(".debug_info") {
        true => DebugInfo::new(source, &storage, &places).ok(),
        false => None,
    };
    let file = CodeFile {
        has_build_id: wanted.build_id.is_some() && binary.build_id().is_some(),
        lines: RefCell::new(lines),
        lines_shift,
        debug: found.debug,
        binary,
        processor,
        storage: &storage,
        asked: Cell::new(0),
    };
    Ok(read(&file))
}

impl CodeFile<'_> {
    /// Returns the path of the file on this machine.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.binary.path
    }

    /// Whether the file has the build id of the profile. Without one in either, the file is the one
    /// with the wanted name, and may have other code.
    #[must_use]
    pub fn has_build_id(&self) -> bool {
        self.has_build_id
    }

    /// Returns the processor for which the file is.
    #[must_use]
    pub fn processor(&self) -> CodeProcessor {
        self.processor
    }

    /// Converts an address in a mapping of the file to a virtual address.
    #[must_use]
    pub fn virtual_address(&self, mapping: &Mapping, address: u64) -> Option<u64> {
        let place = MappedRange {
            memory_start: mapping.memory_start,
            memory_limit: mapping.memory_limit,
            file_offset: mapping.file_offset,
        };
        self.binary.virtual_address(place, address)
    }

    /// Returns the bytes of code at the virtual addresses from `start` to `end`, or up to the end
    /// of the code if that is nearer.
    #[must_use]
    pub fn code(&self, start: u64, end: u64) -> &[u8] {
        self.binary.code(start, end)
    }

    /// Returns the function that contains each of some virtual addresses; of functions inside of
    /// each other, the innermost.
    #[must_use]
    pub fn functions_at(&self, addresses: &[u64]) -> Vec<Option<CodeRange>> {
        let mut found: Vec<Option<CodeRange>> = vec![None; addresses.len()];
        self.each_table(|elf, is_dynamic, shift| {
            if found.iter().all(Option::is_some) {
                return;
            }
            let symbols = SortedSymbols::functions(elf, is_dynamic);
            for (range, &address) in found.iter_mut().zip(addresses) {
                if range.is_none()
                    && let Some(symbol) = symbols.at(address.wrapping_add(shift))
                {
                    *range = Some(CodeRange {
                        start: symbol.start.wrapping_sub(shift),
                        end: symbol.end.wrapping_sub(shift),
                        name: name(elf, &symbols, symbol),
                    });
                }
            }
        });
        if found.iter().any(Option::is_none) {
            let starts = FunctionStarts::new(&self.binary, self.storage);
            for (range, &address) in found.iter_mut().zip(addresses) {
                let unwound = || starts.range(address);
                *range = range.take().or_else(|| {
                    let (start, end) = unwound()?;
                    Some(CodeRange {
                        start,
                        end,
                        name: None,
                    })
                });
            }
        }
        found
    }

    /// Returns names for the virtual addresses that have a symbol.
    #[must_use]
    pub fn names_at(&self, addresses: &[u64]) -> HashMap<u64, String> {
        let mut names = HashMap::new();
        self.each_table(|elf, is_dynamic, shift| {
            if addresses.iter().all(|address| names.contains_key(address)) {
                return;
            }
            let symbols = SortedSymbols::functions_and_variables(elf, is_dynamic);
            for &address in addresses {
                if !names.contains_key(&address)
                    && let Some(symbol) = symbols.at(address.wrapping_add(shift))
                    && let Some(name) = name(elf, &symbols, symbol)
                {
                    let offset = address.wrapping_add(shift).wrapping_sub(symbol.start);
                    let name = match offset {
                        0 => name,
                        _ => format!("{name}+{offset:#x}"),
                    };
                    names.insert(address, name);
                }
            }
        });
        names
    }

    /// Returns what the dynamic loader writes to some virtual addresses, which are in ascending
    /// order.
    #[must_use]
    pub fn loaded_at(&self, addresses: &[u64]) -> HashMap<u64, LoadedAddress> {
        let mut loaded = HashMap::new();
        if addresses.is_empty() {
            return loaded;
        }
        let table = self.binary.object.dynamic_symbol_table();
        let relocations = self.binary.object.dynamic_relocations();
        for (address, relocation) in relocations.into_iter().flatten() {
            if addresses.binary_search(&address).is_err() {
                continue;
            }
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                continue;
            };
            let symbol = match relocation.target() {
                RelocationTarget::Symbol(index) => table
                    .as_ref()
                    .and_then(|table| table.symbol_by_index(index).ok()),
                _ => None,
            };
            let name = symbol.and_then(|symbol| symbol.name().ok().map(str::to_string));
            let name = name.filter(|name| !name.is_empty());
            let name = name.map(|name| demangle(&name).unwrap_or(name));
            let found = match (slot_kind(self.processor, r_type), name) {
                (Some(SlotKind::Symbol), Some(name)) => LoadedAddress::Symbol(name),
                (Some(SlotKind::ThreadOffset), Some(name)) => LoadedAddress::ThreadOffset(name),
                (Some(SlotKind::Relative), _) => LoadedAddress::Address(relocation.addend() as u64),
                _ => continue,
            };
            loaded.insert(address, found);
        }
        loaded
    }

    /// Calls `each` for the functions at a virtual address, innermost first. Functions that are
    /// not known are left out, and damaged debug information counts as missing.
    pub fn frames(&self, address: u64, mut each: impl FnMut(CodeFrame<'_>)) {
        let mut lines = self.lines.borrow_mut();
        self.asked.set(self.asked.get() + 1);
        if self.asked.get().is_multiple_of(MAX_ADDRESSES_PER_CONTEXT)
            && lines.as_mut().is_some_and(|lines| lines.forget().is_err())
        {
            *lines = None;
        }
        let address = address.wrapping_add(self.lines_shift);
        let Some(lines) = lines.as_ref().filter(|_| address != u64::MAX) else {
            return;
        };
        let _damaged = lines.frames(address, |frame| {
            each(CodeFrame {
                function: frame.name,
                file: frame.file,
                line: frame.line,
            });
        });
    }

    /// Calls `each` with each symbol table, the best first: the file that has it, whether it is the
    /// dynamic one, and what is added to the binary's addresses to get those of the table.
    fn each_table(&self, mut each: impl FnMut(&ElfBinary<'_>, bool, u64)) {
        each(&self.binary, false, 0);
        if let Some(debug) = &self.debug {
            each(debug, false, shift(Some(&self.binary), Some(debug)));
        }
        if let Ok(packed @ [_, ..]) = self.binary.section(".gnu_debugdata", self.storage)
            && let Ok(table) = minidebug::inflate(packed)
            && let Ok(inner) = ElfBinary::parse(&self.binary.path, self.storage.keep(table))
        {
            each(&inner, false, 0);
        }
        each(&self.binary, true, 0);
    }
}

/// What the dynamic loader writes to a place of the file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadedAddress {
    /// The address of the symbol with this source name.
    Symbol(String),
    /// The place of the variable with this source name in the memory of each thread.
    ThreadOffset(String),
    /// A virtual address of the same file.
    Address(u64),
}

/// What a relocation writes.
enum SlotKind {
    /// The address of a symbol.
    Symbol,
    /// The place of a symbol in the memory of each thread.
    ThreadOffset,
    /// An address of the same file, or what the function at the address returns.
    Relative,
}

/// Returns what a relocation writes to a slot of the table of addresses. Other relocations, such as
/// those of numbers of modules, write no address. x86 has its relative addresses in the slots
/// themselves, and no instruction refers to a slot by its distance.
fn slot_kind(processor: CodeProcessor, kind: elf::RelocationType) -> Option<SlotKind> {
    match (processor, kind) {
        (CodeProcessor::X86, elf::R_386_GLOB_DAT | elf::R_386_JMP_SLOT)
        | (CodeProcessor::X86_64, elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT)
        | (CodeProcessor::Aarch64, elf::R_AARCH64_GLOB_DAT | elf::R_AARCH64_JUMP_SLOT) => {
            Some(SlotKind::Symbol)
        }
        (CodeProcessor::X86_64, elf::R_X86_64_TPOFF64) => Some(SlotKind::ThreadOffset),
        (CodeProcessor::X86_64, elf::R_X86_64_RELATIVE | elf::R_X86_64_IRELATIVE)
        | (CodeProcessor::Aarch64, elf::R_AARCH64_RELATIVE | elf::R_AARCH64_IRELATIVE) => {
            Some(SlotKind::Relative)
        }
        _ => None,
    }
}

/// Returns the source name of a symbol, without its version.
fn name(elf: &ElfBinary<'_>, symbols: &SortedSymbols, symbol: &SymbolRange) -> Option<String> {
    let name = symbols.name(elf, symbol)?;
    Some(demangle(name).unwrap_or_else(|| name.to_string()))
}
