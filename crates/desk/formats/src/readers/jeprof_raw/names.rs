//! Reads the table of names at the beginning of a symbolized profile.

use std::ops::Range;

use foldhash::HashMap;
use heapprof_profile::{Line, Profile, ProfileBuilder, StringId};

use crate::error::{FormatError, shortened};
use crate::heap_line::HexAddresses;
use crate::lines::LineReader;
use crate::stacks;

const EXPECTED_LINE: &str = "`0xADDRESS NAME`, `binary=PATH` or `---`";

/// The names of functions by address.
#[derive(Default)]
pub(super) struct SymbolNames {
    /// All names, one after the other.
    text: String,
    place: HashMap<u64, Range<usize>>,
    binary: String,
}

impl SymbolNames {
    /// Reads the lines after `--- symbol` up to `---`.
    pub(super) fn read(&mut self, lines: &mut LineReader<'_>) -> Result<(), FormatError> {
        while lines.advance()? {
            let line = lines.trimmed();
            if line.starts_with(b"---") {
                return Ok(());
            }
            if line.is_empty() || line[0] == b'%' {
                continue;
            }
            if let Some(path) = line.strip_prefix(b"binary=") {
                self.binary = String::from_utf8_lossy(path.trim_ascii()).into_owned();
                continue;
            }
            // Other variables are ignored, as the tools ignore them.
            let is_variable = line[0].is_ascii_lowercase() && line.contains(&b'=');
            if !is_variable {
                self.add(lines)?;
            }
        }
        Err(lines.ended(EXPECTED_LINE))
    }

    /// Adds a line such as `0x000055e4e4944a37 shop::Shelf::picture(unsigned
    /// long)<0000000000003a29>`.
    fn add(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let line = lines.trimmed();
        let space = line.iter().position(u8::is_ascii_whitespace);
        // The name may be missing, if neither addr2line nor nm had one.
        let (address, name) = line.split_at(space.unwrap_or(line.len()));
        if !address.starts_with(b"0x") {
            return Err(lines.wrong(EXPECTED_LINE));
        }
        let address = match HexAddresses(address).next() {
            Some(Ok(address)) => address,
            Some(Err(text)) => {
                return Err(lines.wrong_part("an address of 64 bits", shortened(text)));
            }
            None => return Err(lines.wrong(EXPECTED_LINE)),
        };
        let start = self.text.len();
        self.text
            .push_str(&String::from_utf8_lossy(name.trim_ascii()));
        self.place.insert(address, start..self.text.len());
        Ok(())
    }

    /// Gives names to the locations of a profile.
    pub(super) fn put_into(&self, profile: Profile) -> Profile {
        let mut builder = ProfileBuilder::default();
        builder.profile = profile;
        let addresses: Vec<u64> = builder.profile.location.iter().map(|l| l.address).collect();
        let lines: Vec<Vec<Line>> = addresses
            .iter()
            .map(|address| {
                // The tools look up callers by the address of their call, and the innermost frame
                // by its return address.
                let after = address.wrapping_add(1);
                let place = self.place.get(address).or_else(|| self.place.get(&after));
                place.map_or_else(Vec::new, |place| self.lines(&mut builder, place.clone()))
            })
            .collect();

        stacks::set_lines(&mut builder.profile, lines);
        let mut profile = builder.finish();
        profile.mark_symbolized(|_| true);
        if !self.binary.is_empty() {
            let comment = format!("binary: {}", self.binary);
            let comment = profile.strings.intern(&comment);
            profile.comment.push(comment);
        }
        profile
    }

    /// Returns the functions of one address, innermost first. In the file, the functions are
    /// written outermost first, with `--` between them.
    fn lines(&self, builder: &mut ProfileBuilder, place: Range<usize>) -> Vec<Line> {
        let names = self.text[place].rsplit("--").map(bare);
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        let function = |name| {
            let name = builder.text(name);
            Line {
                function: builder.named_function(name, StringId::EMPTY),
                line: 0,
                column: 0,
            }
        };
        names.into_iter().map(function).collect()
    }
}

/// Removes from a name the parts that nm and jeprof append: the version of the symbol, and its
/// address in `<…>`.
fn bare(name: &str) -> &str {
    let mut name = name.trim();
    if let Some((before, address)) = name.strip_suffix('>').and_then(|n| n.rsplit_once('<'))
        && matches!(address.len(), 8 | 16)
        && address.bytes().all(|b| b.is_ascii_hexdigit())
    {
        name = before;
    }
    match name.rsplit_once("@@") {
        Some((before, version)) if !before.is_empty() && !version.contains(char::is_whitespace) => {
            before
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_their_tails() {
        let table = [
            ("main", "main"),
            ("main<0000000000003824>", "main"),
            (
                "std::f(int)@@GLIBCXX_3.4.26<00000000000a0a67>",
                "std::f(int)",
            ),
            ("f<12345678>", "f"),
            ("f<int>", "f<int>"),
            ("f<123456789>", "f<123456789>"),
            ("@@V", "@@V"),
            ("<0000000000003824>", ""),
        ];
        for (name, expected) in table {
            assert_eq!(bare(name), expected);
        }
    }
}
