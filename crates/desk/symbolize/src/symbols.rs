//! Symbol tables, which give the function at an address if there is no debug information, and how
//! far its code reaches.

use object::{Object, ObjectSymbol, ObjectSymbolTable, SectionIndex, SymbolIndex, SymbolKind};

use crate::elf::ElfBinary;

/// The symbols of one symbol table, sorted by address. Names are not copied from the file.
pub(crate) struct SortedSymbols {
    symbols: Vec<SymbolRange>,
    is_dynamic: bool,
}

/// A symbol and its virtual addresses.
pub(crate) struct SymbolRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) index: SymbolIndex,
    /// Index of the nearest earlier symbol that contains the start of this symbol; [`NO_SYMBOL`] if
    /// there is none.
    around: u32,
}

const NO_SYMBOL: u32 = u32::MAX;

impl SortedSymbols {
    /// Reads the functions of `.symtab`, or of `.dynsym` if `is_dynamic`. A function without a size
    /// ends where the next one begins.
    pub(crate) fn functions(elf: &ElfBinary<'_>, is_dynamic: bool) -> Self {
        let code_ends = elf.code_ends();
        let is_function = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown);
        let mut symbols = read(elf, is_dynamic, is_function, |section| {
            section.and_then(|i| code_ends.get(i.0)).copied()
        });
        let mut next = u64::MAX;
        let mut start = u64::MAX;
        for function in symbols.iter_mut().rev() {
            if function.start != start {
                next = start;
                start = function.start;
            }
            if function.end == function.start {
                let section = code_ends.iter().filter(|&&end| end > start).min();
                function.end = next.min(section.copied().unwrap_or(next));
            }
        }
        Self::with_ends(symbols, is_dynamic)
    }

    /// Reads the functions and variables of `.symtab`, or of `.dynsym` if `is_dynamic`. One without
    /// a size has one byte.
    pub(crate) fn functions_and_variables(elf: &ElfBinary<'_>, is_dynamic: bool) -> Self {
        let is_wanted = |kind| {
            matches!(
                kind,
                SymbolKind::Text | SymbolKind::Data | SymbolKind::Unknown
            )
        };
        let ends = elf.loaded_ends();
        let mut symbols = read(elf, is_dynamic, is_wanted, |section| {
            section.and_then(|i| ends.get(i.0)).copied()
        });
        for symbol in &mut symbols {
            symbol.end = symbol.end.max(symbol.start.saturating_add(1));
        }
        Self::with_ends(symbols, is_dynamic)
    }

    /// Takes sorted symbols whose ends are known, and finds out which contain which.
    fn with_ends(mut symbols: Vec<SymbolRange>, is_dynamic: bool) -> Self {
        let mut open: Vec<u32> = Vec::new();
        for i in 0..symbols.len() {
            let start = symbols[i].start;
            while open
                .last()
                .is_some_and(|&o| symbols[o as usize].end <= start)
            {
                open.pop();
            }
            symbols[i].around = open.last().copied().unwrap_or(NO_SYMBOL);
            open.push(i as u32);
        }
        Self {
            symbols,
            is_dynamic,
        }
    }

    /// Returns the symbol that contains `address`; the innermost, if one contains another.
    pub(crate) fn at(&self, address: u64) -> Option<&SymbolRange> {
        let after = self.symbols.partition_point(|s| s.start <= address);
        let mut symbol = self.symbols.get(after.checked_sub(1)?);
        while let Some(found) = symbol.filter(|s| s.end <= address) {
            symbol = self.symbols.get(found.around as usize);
        }
        symbol
    }

    /// Returns the linker name, without a version, of the function that contains `address`. With
    /// `nearest`, an address outside all functions gets the name of the function before it, or of
    /// the first function.
    pub(crate) fn find<'a>(
        &self,
        elf: &ElfBinary<'a>,
        address: u64,
        nearest: bool,
    ) -> Option<&'a str> {
        let before = || {
            let after = self.symbols.partition_point(|s| s.start <= address);
            self.symbols.get(after.saturating_sub(1))
        };
        let symbol = match self.at(address) {
            Some(symbol) => symbol,
            None if nearest => before()?,
            None => return None,
        };
        self.name(elf, symbol)
    }

    /// Returns the linker name of a symbol, without a version.
    pub(crate) fn name<'a>(&self, elf: &ElfBinary<'a>, symbol: &SymbolRange) -> Option<&'a str> {
        let name = name(elf, symbol.index, self.is_dynamic)?;
        Some(name.split_once('@').map_or(name, |(name, _version)| name))
    }
}

/// Reads the symbols of some kinds, sorted by address; `limit` returns the end of a symbol's
/// section. The end of a symbol without a size is its start.
fn read(
    elf: &ElfBinary<'_>,
    is_dynamic: bool,
    is_wanted: impl Fn(SymbolKind) -> bool,
    limit: impl Fn(Option<SectionIndex>) -> Option<u64>,
) -> Vec<SymbolRange> {
    let all = match is_dynamic {
        false => elf.object.symbols(),
        true => elf.object.dynamic_symbols(),
    };
    let mut symbols = Vec::new();
    for symbol in all {
        if !is_wanted(symbol.kind()) {
            continue;
        }
        let limit = limit(symbol.section_index()).unwrap_or(0);
        let start = symbol.address();
        if start >= limit || !is_name(symbol.name_bytes().unwrap_or_default()) {
            continue;
        }
        symbols.push(SymbolRange {
            start,
            end: start.saturating_add(symbol.size()).min(limit),
            index: symbol.index(),
            around: NO_SYMBOL,
        });
    }
    // Of several names for one address, the best is sorted last, and lookups find the last one.
    symbols.sort_unstable_by_key(|s| s.start);
    for same in symbols.chunk_by_mut(|a, b| a.start == b.start) {
        if same.len() > 1 {
            same.sort_by_cached_key(|s| rank(elf, s.index, is_dynamic));
        }
    }
    symbols
}

fn name<'a>(elf: &ElfBinary<'a>, index: SymbolIndex, is_dynamic: bool) -> Option<&'a str> {
    symbol(elf, index, is_dynamic)?.name().ok()
}

/// Returns the symbol with an index, from `.dynsym` if `is_dynamic`, otherwise from `.symtab`.
fn symbol<'e, 'a>(
    elf: &'e ElfBinary<'a>,
    index: SymbolIndex,
    is_dynamic: bool,
) -> Option<impl ObjectSymbol<'a> + use<'e, 'a>> {
    let table = match is_dynamic {
        false => elf.object.symbol_table(),
        true => elf.object.dynamic_symbol_table(),
    };
    table?.symbol_by_index(index).ok()
}

/// Whether a name is the name of a function. Names of sections and assembler marks (`$x`, `.L1`)
/// are not.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, [] | [b'$' | b'.', ..])
}

/// Returns the rank of a name among the names at one address. The best name has a known size, is
/// global, and begins with few underscores, because such a name is familiar to the reader.
fn rank(
    elf: &ElfBinary<'_>,
    index: SymbolIndex,
    is_dynamic: bool,
) -> (bool, u8, std::cmp::Reverse<(usize, String)>) {
    let Some(symbol) = symbol(elf, index, is_dynamic) else {
        return (false, 0, std::cmp::Reverse((0, String::new())));
    };
    let name = symbol.name().unwrap_or_default();
    let underscores = name.bytes().take_while(|&b| b == b'_').count();
    let binding = match (symbol.is_global(), symbol.is_weak()) {
        (true, false) => 2,
        (_, true) => 1,
        _ => 0,
    };
    (
        symbol.size() > 0,
        binding,
        std::cmp::Reverse((underscores, name.to_string())),
    )
}
