//! Symbols of an object file that match: nm lists them, and names at the same address belong
//! together.

use std::sync::LazyLock;

use heapprof_symbolize::{NameStyle, demangle_in_style};
use regex::Regex;

use crate::report::{ObjectSymbol, SymbolQuery};

/// A symbol that has an address: the address, the type, the name.
static SYMBOL_LINE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^([[:xdigit:]]+)[\t\n\f\r ]+.[\t\n\f\r ]+(.*)").ok());

/// The forms of a source name that are compared with the expression.
const STYLES: [NameStyle; 3] = [NameStyle::Full, NameStyle::Templates, NameStyle::Short];

/// Reads lines of `nm -n` one after the other, and keeps the symbols that a query finds.
pub(super) struct SymbolFinder<'q> {
    query: &'q SymbolQuery,
    /// The names at the address that was read last.
    names: Vec<String>,
    start: u64,
    found: Vec<ObjectSymbol>,
}

impl<'q> SymbolFinder<'q> {
    pub(super) fn new(query: &'q SymbolQuery) -> Self {
        Self {
            query,
            names: Vec::new(),
            start: 0,
            found: Vec::new(),
        }
    }

    /// Adds a line of nm's output. A line without an address is ignored.
    pub(super) fn add(&mut self, line: &str) {
        let symbol = SYMBOL_LINE.as_ref().and_then(|kind| {
            let found = kind.captures(line.trim())?;
            let address = u64::from_str_radix(found.get(1)?.as_str(), 16).ok()?;
            Some((address, found.get(2)?.as_str().to_string()))
        });
        let Some((address, name)) = symbol else {
            return;
        };
        if address != self.start {
            self.close(address);
            self.start = address;
            self.names.clear();
        }
        self.names.push(name);
    }

    /// Returns the symbols that were found. The last one has no end.
    pub(super) fn finish(mut self) -> Vec<ObjectSymbol> {
        if !self.names.is_empty() {
            self.close(0);
        }
        self.found
    }

    /// Ends the names at `start`, because the next symbol is at `next`.
    fn close(&mut self, next: u64) {
        let end = next.wrapping_sub(1);
        let address = self.query.address;
        let names = if address != 0 && (self.start..=end).contains(&address) {
            Some(self.names.clone())
        } else {
            self.names.iter().find_map(|name| self.shown_name(name))
        };
        if let Some(names) = names {
            self.found.push(ObjectSymbol {
                names,
                start: self.start,
                end,
            });
        }
    }

    /// Returns the form of a name that matches.
    fn shown_name(&self, name: &str) -> Option<Vec<String>> {
        let matches = |name: &str| self.query.pattern.is_match(name);
        if matches(name) {
            return Some(vec![name.to_string()]);
        }
        let forms = STYLES
            .iter()
            .filter_map(|&style| demangle_in_style(name, style));
        forms
            .into_iter()
            .find(|form| matches(form))
            .map(|form| vec![form])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NM: &str = "                 U abort\n0000000000001000 T _init\n\
                      0000000000001139 T main\n0000000000001139 t alias\n\
                      0000000000001150 W _ZN3foo3barIiEEvi\n0000000000001180 T _fini\n";

    fn find(pattern: &str, address: u64) -> Vec<(String, u64, u64)> {
        let query = SymbolQuery {
            pattern: Regex::new(pattern).unwrap(),
            address,
        };
        let mut finder = SymbolFinder::new(&query);
        NM.lines().for_each(|line| finder.add(line));
        let found = finder.finish().into_iter();
        found.map(|s| (s.names.join(" "), s.start, s.end)).collect()
    }

    #[test]
    fn names_and_addresses() {
        let row = |name: &str, start, end| (name.to_string(), start, end);
        assert_eq!(find("^main$", 0), [row("main", 0x1139, 0x114f)]);
        assert_eq!(find("alias", 0), [row("alias", 0x1139, 0x114f)]);
        assert_eq!(find("x", 0x1140), [row("main alias", 0x1139, 0x114f)]);
        let bar = |name| [row(name, 0x1150, 0x117f)];
        assert_eq!(find("_ZN3foo", 0), bar("_ZN3foo3barIiEEvi"));
        assert_eq!(
            find(r"foo::bar<int>\(int\)", 0),
            bar("void foo::bar<int>(int)")
        );
        assert_eq!(find(r"^foo::bar<int>$", 0), bar("foo::bar<int>"));
        assert_eq!(find(r"^foo::bar$", 0), bar("foo::bar"));
        assert_eq!(find("_fini", 0), [row("_fini", 0x1180, u64::MAX)]);
        assert_eq!(find("abort", 0), []);
        // As in pprof, what is before the first symbol has no name.
        assert_eq!(find("x", 0x10), [row("", 0, 0xfff)]);
    }
}
