//! Finds the symbol at a position in a file: a function, a variable or a table of a class.

use std::path::Path;

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::SymbolizeOptions;
use crate::demangle::demangle;
use crate::elf::ElfBinary;
use crate::storage::FileStorage;

/// The symbols of a file, sorted by position.
#[derive(Clone, Debug, Default)]
pub struct FileSymbols {
    /// The start, end and linker name of each symbol. Start and end are distances in bytes from the
    /// file's first byte in memory.
    all: Vec<(u64, u64, String)>,
}

impl FileSymbols {
    /// Reads the symbols of a file. The result is empty if the file can't be read, or if the
    /// options do not allow reading it.
    #[must_use]
    pub fn open(path: &Path, options: &SymbolizeOptions) -> Self {
        let storage = FileStorage::with_options(options);
        let Ok(Some(elf)) = ElfBinary::open(path, &storage) else {
            return Self::default();
        };
        // A program with a fixed address begins at this address.
        let first = elf
            .object
            .segments()
            .map(|segment| segment.address() & !0xfff)
            .min();
        let base = first.unwrap_or(0);
        let symbols = elf.object.symbols().chain(elf.object.dynamic_symbols());
        let is_wanted = |kind| matches!(kind, SymbolKind::Data | SymbolKind::Text);
        let label = |symbol: object::Symbol<'_, '_>| {
            let start = symbol.address().checked_sub(base)?;
            let name = symbol.name().ok()?.split('@').next()?;
            (is_wanted(symbol.kind()) && !symbol.is_undefined() && !name.is_empty()).then(|| {
                (
                    start,
                    start.saturating_add(symbol.size().max(1)),
                    name.to_string(),
                )
            })
        };
        let mut all: Vec<_> = symbols.filter_map(label).collect();
        all.sort();
        all.dedup();
        Self { all }
    }

    /// Returns the source name of the symbol at `place`, a distance in bytes from the file's first
    /// byte in memory.
    #[must_use]
    pub fn at(&self, place: u64) -> Option<String> {
        let (_, name) = self.around(place)?;
        Some(demangle(name).unwrap_or_else(|| name.to_string()))
    }

    /// Returns the start and the linker name of the symbol at `place`. The start and `place` are
    /// distances in bytes from the file's first byte in memory.
    #[must_use]
    pub fn around(&self, place: u64) -> Option<(u64, &str)> {
        let next = self.all.partition_point(|(start, ..)| *start <= place);
        let (start, end, name) = &self.all[next.checked_sub(1)?];
        (place < *end).then_some((*start, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_is_found_by_its_place() {
        let labels = FileSymbols::open(
            &std::env::current_exe().unwrap(),
            &SymbolizeOptions::default(),
        );
        // `FileSymbols::open` itself is one of the program's symbols.
        let is_it = |name: &str| name.contains("abels::FileSymbols") && name.ends_with("::open");
        let is_open = |name: &str| demangle(name).is_some_and(|name| is_it(&name));
        let own = labels.all.iter().find(|one| is_open(&one.2));
        let (start, end, _) = own.unwrap();
        for place in [*start, *end - 1] {
            assert!(is_it(&labels.at(place).unwrap()), "{place:#x}");
        }
        assert_ne!(labels.at(*end), labels.at(*start));
        assert_eq!(
            FileSymbols::open(Path::new("/dev/null"), &SymbolizeOptions::default()).at(0),
            None
        );
    }
}
