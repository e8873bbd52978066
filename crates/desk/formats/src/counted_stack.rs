//! The sample line that contention profiles and Google's Java agent share: `VALUE COUNT @ 0xADDRESS
//! …`.

use crate::error::{FormatError, shortened};
use crate::figures;
use crate::heap_line::HexAddresses;
use crate::lines::LineReader;

/// A line with a value, the number of events that it is the sum of, and their stack.
pub(crate) struct CountedStack<'a> {
    pub(crate) value: i64,
    pub(crate) count: i64,
    /// The addresses, or Java's numbers of frames, up to the first byte that can't be part of one.
    pub(crate) stack: HexAddresses<'a>,
}

impl<'a> CountedStack<'a> {
    /// Reads the current line; `None` if it is of another form. A number of more than 64 bits is an
    /// error.
    pub(crate) fn read(lines: &'a LineReader<'_>) -> Result<Option<Self>, FormatError> {
        let Some([value, count, stack]) = split(lines.trimmed()) else {
            return Ok(None);
        };
        let number = |digits| {
            let number = figures::value(digits);
            number.ok_or_else(|| lines.wrong_part("a number below 2^63", shortened(digits)))
        };
        Ok(Some(Self {
            value: number(value)?,
            count: number(count)?,
            stack: HexAddresses(stack),
        }))
    }
}

/// Splits a line into the digits of its value, those of its count, and the text of its stack.
fn split(line: &[u8]) -> Option<[&[u8]; 3]> {
    let at = memchr::memchr(b'@', line)?;
    let words = line[..at].split(|&b| b == b' ');
    let mut words = words.filter(|word| !word.is_empty());
    let number = |word: Option<_>| word.filter(|w: &&[u8]| w.iter().all(u8::is_ascii_digit));
    let (value, count) = (number(words.next())?, number(words.next())?);
    let stack = &line[at + 1..];
    let is_foreign = |b: &u8| !matches!(b, b' ' | b'x' | b'0'..=b'9' | b'a'..=b'f');
    let end = stack.iter().position(is_foreign).unwrap_or(stack.len());
    words
        .next()
        .is_none()
        .then_some([value, count, &stack[..end]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_stacks() {
        let table = [
            ("96 2 @ 0x11 0x21", Some("96|2| 0x11 0x21")),
            ("  96    2 @", Some("96|2|")),
            ("96 2@0x11", Some("96|2|0x11")),
            ("96 2 @ 0x11 # 0x21", Some("96|2| 0x11 ")),
            ("96 @ 0x11", None),
            ("96 2 3 @ 0x11", None),
            ("-96 2 @ 0x11", None),
            ("96 two @ 0x11", None),
            ("96 2 0x11", None),
            ("", None),
        ];
        for (line, expected) in table {
            let found = split(line.as_bytes()).map(|parts| {
                let parts = parts.map(|part| String::from_utf8_lossy(part).into_owned());
                parts.join("|")
            });
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }
}
