//! The questions that `-disasm` and `-weblist` ask about object files. The printers know only these
//! traits, so that tests can answer without a file.

use std::ops::Range;
use std::rc::Rc;

use regex::Regex;

/// An instruction as a disassembler shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// The address in the object file.
    pub address: u64,
    /// The text: the operation and its operands.
    pub text: String,
    /// The function; empty if unknown. Neighbours share the text.
    pub function: Rc<str>,
    /// The source file; empty if unknown. Neighbours share the text.
    pub file: Rc<str>,
    /// The line; 0 if unknown.
    pub line: i64,
}

/// A function at an address, and the place in it. The function may be inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlinedFrame {
    /// The linker name of the function; empty if unknown.
    pub function: String,
    /// The source file; empty if unknown.
    pub file: String,
    /// The line; 0 if unknown.
    pub line: i64,
}

/// The symbols at an address of an object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSymbol {
    /// The names to show. The first one is the title.
    pub names: Vec<String>,
    /// The address of the symbols in the object file.
    pub start: u64,
    /// The last address before the next symbol.
    pub end: u64,
}

/// The symbols to find: those whose linker name or source name matches, and those at an address.
#[derive(Clone, Debug)]
pub struct SymbolQuery {
    /// The regular expression for names.
    pub pattern: Regex,
    /// The address; 0 if none is wanted.
    pub address: u64,
}

/// Where a part of an object file was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectMapping {
    /// The first address.
    pub start: u64,
    /// The end of the addresses.
    pub limit: u64,
    /// The offset in the file.
    pub offset: u64,
}

/// Tools that read object files. Errors are one line.
pub trait ObjectTool {
    /// Opens an object file that a profile maps.
    ///
    /// # Errors
    /// The file can't be read.
    fn open(&self, file: &str, mapping: ObjectMapping) -> Result<Box<dyn ObjectFile>, String>;

    /// Returns the instructions in a range of addresses of an object file.
    ///
    /// # Errors
    /// There is no disassembler, or it failed.
    fn disassemble(
        &self,
        file: &str,
        range: Range<u64>,
        intel_syntax: bool,
    ) -> Result<Vec<Instruction>, String>;
}

/// An object file that a profile maps.
pub trait ObjectFile {
    /// Converts an address of the profile to an address in the object file. The first address that
    /// is asked for decides about all: if it is outside the mapping, every conversion fails.
    ///
    /// # Errors
    /// The file was not mapped there.
    fn object_address(&self, address: u64) -> Result<u64, String>;

    /// Returns the symbols that a query finds, in ascending order of addresses.
    ///
    /// # Errors
    /// There is no tool that lists symbols, or it failed.
    fn symbols(&self, query: &SymbolQuery) -> Result<Vec<ObjectSymbol>, String>;

    /// Returns the functions at an address of the profile, the innermost first.
    ///
    /// # Errors
    /// There is no tool that finds functions, or it failed.
    fn frames(&self, address: u64) -> Result<Vec<InlinedFrame>, String>;
}

/// A problem with an object file, which a report does without. The text is in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectProblem {
    /// The file can't be opened. pprof prints the reason above its report.
    NotOpened(String),
    /// The symbols of the file can't be read. pprof says nothing.
    NoSymbols(String),
}

/// Reads an address as Go reads numbers in source code: `4096`, `0x1000`, `0o10`, `0b1`, `010`,
/// with underscores between digits. Returns `None` for other texts.
pub(super) fn parse_address(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefixed = prefixes
        .iter()
        .find_map(|&(prefix, base)| Some((lower.strip_prefix(prefix)?, base)));
    let (digits, base) = match prefixed {
        Some((digits, base)) => (digits.strip_prefix('_').unwrap_or(digits), base),
        None if lower.len() > 1 && lower.starts_with('0') => (lower.as_str(), 8),
        None => (lower.as_str(), 10),
    };
    if !digits
        .split('_')
        .all(|group| !group.is_empty() && group.bytes().all(|b| b.is_ascii_alphanumeric()))
    {
        return None;
    }
    u64::from_str_radix(&digits.replace('_', ""), base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares addresses with what Go's `strconv.ParseUint(text, 0, 64)` returns.
    #[test]
    fn addresses() {
        let table = [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("0x1000", Some(0x1000)),
            ("0XfF", Some(0xff)),
            ("0x_1", Some(1)),
            ("1_000", Some(1000)),
            ("010", Some(8)),
            ("0b11", Some(3)),
            ("0o17", Some(15)),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0x10000000000000000", None),
            ("08", None),
            ("1__0", None),
            ("1_", None),
            ("_1", None),
            ("+1", None),
            ("-1", None),
            ("0x", None),
            ("0x+1", None),
            ("", None),
            ("dead", None),
            ("main", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_address(text), expected, "{text}");
        }
    }
}
