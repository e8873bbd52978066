//! The two kinds of lines that gperftools, tcmalloc, Go and old jemalloc share: `heap profile: … @
//! type/N` and `n: bytes [n: bytes] @ addresses`.
//!
//! A line is accepted if pprof's `profile/legacy_profile.go` accepts it, so that any file that
//! pprof reads can be read. Both patterns may be anywhere in their line, and blanks are optional
//! wherever pprof treats them as optional.

use memchr::memmem;

/// The first line of a heap profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapHeaderLine<'a> {
    /// The digits of the count and bytes in use, then of the count and bytes allocated.
    pub(crate) totals: [&'a [u8]; 4],
    /// Text after the `@`.
    pub(crate) kind: &'a [u8],
}

impl<'a> HeapHeaderLine<'a> {
    /// Finds the header in this line, if there is one.
    pub(crate) fn find(line: &'a [u8]) -> Option<Self> {
        const HEADER_START: &[u8] = b"heap profile:";
        memmem::find_iter(line, HEADER_START).find_map(|at| {
            let mut rest = &line[at + HEADER_START.len()..];
            let totals = four(&mut rest, false)?;
            blanks(&mut rest);
            Some(Self {
                totals,
                kind: rest.strip_prefix(b"@")?,
            })
        })
    }

    /// Whether allocations are counted separately from memory in use. This is the case if a total
    /// of allocations is not 0 and differs from the total in use.
    pub(crate) fn has_allocations(&self) -> bool {
        let [count, bytes, all_count, all_bytes] = self.totals;
        (all_count != count && all_count != b"0") || (all_bytes != bytes && all_bytes != b"0")
    }

    /// Returns the name of the kind and the digits after it. `heap_v2/524288` gives `heap_v2` and
    /// `524288`.
    pub(crate) fn name_and_period(&self) -> (&'a [u8], &'a [u8]) {
        let mut rest = self.kind;
        blanks(&mut rest);
        let name = |&b: &u8| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit();
        let name = take(&mut rest, name);
        rest = rest.strip_prefix(b"/").unwrap_or(rest);
        (name, take(&mut rest, u8::is_ascii_digit))
    }
}

/// A line with counts and a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapSampleLine<'a> {
    /// The digits of the count and bytes in use, then of the count and bytes allocated.
    pub(crate) values: [&'a [u8]; 4],
    /// Text after the `@`, up to the first byte that can't be part of an address.
    pub(crate) stack: &'a [u8],
}

impl<'a> HeapSampleLine<'a> {
    /// Finds the sample in this line, if there is one.
    pub(crate) fn find(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        loop {
            // The first number is tried first. A minus sign before it belongs to the number.
            let start = rest.iter().position(u8::is_ascii_digit)?;
            let minus = start > 0 && rest[start - 1] == b'-';
            let mut tail = &rest[start - usize::from(minus)..];
            if let Some(values) = four(&mut tail, true)
                && let Some(mut stack) = tail.strip_prefix(b" @")
            {
                let stack = take(
                    &mut stack,
                    |&b| matches!(b, b' ' | b'x' | b'0'..=b'9' | b'a'..=b'f'),
                );
                return Some(Self { values, stack });
            }
            // A later digit of the same number can't match either.
            rest = &rest[start..];
            take(&mut rest, u8::is_ascii_digit);
        }
    }
}

/// Takes `1: 2 [3: 4]` from the beginning of `rest`.
pub(crate) fn values<'a>(rest: &mut &'a [u8]) -> Option<[&'a [u8]; 4]> {
    four(rest, false)
}

/// Takes `1: 2 [3: 4]` from the beginning of `rest`. If `signed`, the first two numbers may be
/// negative.
fn four<'a>(rest: &mut &'a [u8], signed: bool) -> Option<[&'a [u8]; 4]> {
    let mut values = [&b""[..]; 4];
    for (i, value) in values.iter_mut().enumerate() {
        blanks(rest);
        *value = number(rest, signed && i < 2)?;
        match i {
            0 | 2 => expect(rest, b':')?,
            1 => {
                blanks(rest);
                expect(rest, b'[')?;
            }
            _ => {
                blanks(rest);
                expect(rest, b']')?;
            }
        }
    }
    Some(values)
}

fn number<'a>(rest: &mut &'a [u8], signed: bool) -> Option<&'a [u8]> {
    let whole = *rest;
    if signed {
        *rest = rest.strip_prefix(b"-").unwrap_or(rest);
    }
    match take(rest, u8::is_ascii_digit) {
        [] => None,
        _ => Some(&whole[..whole.len() - rest.len()]),
    }
}

fn expect(rest: &mut &[u8], byte: u8) -> Option<()> {
    let (&first, tail) = rest.split_first()?;
    *rest = tail;
    (first == byte).then_some(())
}

fn blanks(rest: &mut &[u8]) {
    take(rest, |&b| b == b' ');
}

/// Takes the bytes for which `fits` is true from the beginning of `rest`.
fn take<'a>(rest: &mut &'a [u8], fits: impl Fn(&u8) -> bool) -> &'a [u8] {
    let end = rest.iter().position(|b| !fits(b)).unwrap_or(rest.len());
    let (taken, tail) = rest.split_at(end);
    *rest = tail;
    taken
}

/// Iterator over the addresses in a text. An address is `0x` followed by lower-case hexadecimal
/// digits.
///
/// Text between addresses is skipped. An address of more than 64 bits ends the iteration with an
/// error that holds the text of the address.
pub(crate) struct HexAddresses<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for HexAddresses<'a> {
    type Item = Result<u64, &'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.0;
        loop {
            let start = rest;
            match rest {
                [b'0', b'x', tail @ ..] => rest = tail,
                [_, tail @ ..] => {
                    rest = tail;
                    continue;
                }
                [] => {
                    self.0 = rest;
                    return None;
                }
            }
            let digits = rest;
            let (mut address, mut overflow) = (0u64, 0);
            while let [digit, tail @ ..] = rest {
                let digit = match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => break,
                };
                overflow |= address >> 60;
                address = address << 4 | u64::from(digit);
                rest = tail;
            }
            if rest.len() == digits.len() {
                continue;
            }
            if overflow != 0 {
                self.0 = &[];
                return Some(Err(&start[..start.len() - rest.len()]));
            }
            self.0 = rest;
            return Some(Ok(address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(parts: &[&[u8]]) -> String {
        let parts: Vec<_> = parts.iter().map(|p| String::from_utf8_lossy(p)).collect();
        parts.join("|")
    }

    #[test]
    fn headers() {
        let table = [
            (
                "heap profile:  26428:  7745578 [409511: 44302077] @ heapprofile",
                Some("26428|7745578|409511|44302077|heapprofile|"),
            ),
            (
                "heap profile: 1:2[3:4]@heap_v2/524288",
                Some("1|2|3|4|heap_v2|524288"),
            ),
            (
                "  my heap profile: 0: 0 [0: 0] @ growthz",
                Some("0|0|0|0|growthz|"),
            ),
            (
                "heap profile: heap profile: 0: 0 [ 0: 0 ]   @ x",
                Some("0|0|0|0|x|"),
            ),
            ("heap profile: 1: -2 [0: 0] @ heap/1", None),
            ("heap profile: 1: 2 [0: 0]", None),
            ("heap profile 1: 2 [0: 0] @ heap/1", None),
            ("", None),
        ];
        for (line, expected) in table {
            let found = HeapHeaderLine::find(line.as_bytes()).map(|header| {
                let (name, period) = header.name_and_period();
                shown(&[&header.totals[..], &[name, period]].concat())
            });
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn samples() {
        let table = [
            ("1: 96 [2: 97] @ 0x40 0x41", Some("1|96|2|97| 0x40 0x41")),
            ("-1: -96[  2:97 ] @", Some("-1|-96|2|97|")),
            ("--1:-2 [3:4] @ 0x1", Some("-1|-2|3|4| 0x1")),
            ("t1: 7 9: 5: 6 [7: 8] @ 0xAB", Some("5|6|7|8| 0x")),
            ("1: 96 [2: 97]  @ 0x40", None),
            ("1: 96 [-2: 97] @ 0x40", None),
            ("1: 96 (2: 97) @ 0x40", None),
            ("@ 0x40", None),
            ("", None),
        ];
        for (line, expected) in table {
            let found = HeapSampleLine::find(line.as_bytes())
                .map(|sample| shown(&[&sample.values[..], &[sample.stack]].concat()));
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn addresses() {
        let table: [(&str, &[Result<u64, &str>]); 7] = [
            (" 0x40 0x41", &[Ok(0x40), Ok(0x41)]),
            ("0x40x5", &[Ok(0x40)]),
            ("00x40", &[Ok(0x40)]),
            ("x 0x 0xx 0x7", &[Ok(7)]),
            ("0xffffffffffffffff", &[Ok(u64::MAX)]),
            ("0x00000000000000000001", &[Ok(1)]),
            (
                "0x1 0x10000000000000000 0x2",
                &[Ok(1), Err("0x10000000000000000")],
            ),
        ];
        for (text, expected) in table {
            let found: Vec<_> = HexAddresses(text.as_bytes())
                .map(|a| a.map_err(|text| std::str::from_utf8(text).unwrap()))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
