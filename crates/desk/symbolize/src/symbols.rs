//! Symbol tables, which give the function at an address if there is no debug information.

use object::{Object, ObjectSymbol, ObjectSymbolTable, SymbolIndex, SymbolKind};

use crate::elf::ElfBinary;

/// The functions of one symbol table, sorted by address. Names are not copied from the file.
pub(crate) struct FunctionSymbols {
    functions: Vec<FunctionSymbol>,
    is_dynamic: bool,
}

struct FunctionSymbol {
    start: u64,
    end: u64,
    index: SymbolIndex,
    /// Index of the nearest earlier function that contains the start of this function;
    /// [`NO_FUNCTION`] if there is none.
    around: u32,
}

const NO_FUNCTION: u32 = u32::MAX;

impl FunctionSymbols {
    /// Reads the functions of `.symtab`, or of `.dynsym` if `is_dynamic`.
    pub(crate) fn new(elf: &ElfBinary<'_>, is_dynamic: bool) -> Self {
        let code_ends = elf.code_ends();
        let symbols = match is_dynamic {
            false => elf.object.symbols(),
            true => elf.object.dynamic_symbols(),
        };
        let mut functions = Vec::new();
        for symbol in symbols {
            if !matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown) {
                continue;
            }
            let section = symbol.section_index().and_then(|i| code_ends.get(i.0));
            let limit = section.copied().unwrap_or(0);
            let start = symbol.address();
            if start >= limit || !is_name(symbol.name_bytes().unwrap_or_default()) {
                continue;
            }
            functions.push(FunctionSymbol {
                start,
                // Functions without a size get their end below.
                end: match symbol.size() {
                    0 => start,
                    size => start.saturating_add(size).min(limit),
                },
                index: symbol.index(),
                around: NO_FUNCTION,
            });
        }
        // Of several names for one address, the best is sorted last, and lookups find the last one.
        functions.sort_unstable_by_key(|f| f.start);
        for same in functions.chunk_by_mut(|a, b| a.start == b.start) {
            if same.len() > 1 {
                same.sort_by_cached_key(|f| rank(elf, f.index, is_dynamic));
            }
        }
        let mut next = u64::MAX;
        let mut start = u64::MAX;
        for function in functions.iter_mut().rev() {
            if function.start != start {
                next = start;
                start = function.start;
            }
            if function.end == function.start {
                let section = code_ends.iter().filter(|&&end| end > start).min();
                function.end = next.min(section.copied().unwrap_or(next));
            }
        }
        let mut open: Vec<u32> = Vec::new();
        for i in 0..functions.len() {
            let start = functions[i].start;
            while open
                .last()
                .is_some_and(|&o| functions[o as usize].end <= start)
            {
                open.pop();
            }
            functions[i].around = open.last().copied().unwrap_or(NO_FUNCTION);
            open.push(i as u32);
        }
        Self {
            functions,
            is_dynamic,
        }
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
        let after = self.functions.partition_point(|f| f.start <= address);
        let before = self.functions.get(after.saturating_sub(1))?;
        let mut function = Some(before).filter(|f| f.start <= address);
        while let Some(found) = function.filter(|f| f.end <= address) {
            function = self.functions.get(found.around as usize);
        }
        let function = match function {
            Some(function) => function,
            None if nearest => before,
            None => return None,
        };
        let name = name(elf, function.index, self.is_dynamic)?;
        Some(name.split_once('@').map_or(name, |(name, _version)| name))
    }
}

pub(crate) fn name<'a>(
    elf: &ElfBinary<'a>,
    index: SymbolIndex,
    is_dynamic: bool,
) -> Option<&'a str> {
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
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, [] | [b'$' | b'.', ..])
}

/// Returns the rank of a name among the names at one address. The best name has a known size, is
/// global, and begins with few underscores, because such a name is familiar to the reader.
pub(crate) fn rank(
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
