//! Converts a stream of UTF-16, which tools of Windows write, to UTF-8.
//!
//! The standard library has everything for this except the stream, so no crate with tables of other
//! encodings is needed.

use std::io::{self, ErrorKind, Read};

/// Number of bytes that are decoded at a time.
const CHUNK_SIZE: usize = 32 << 10;

/// The order of the two bytes of a UTF-16 unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    LittleEndian,
    BigEndian,
}

impl ByteOrder {
    fn unit(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::LittleEndian => u16::from_le_bytes(bytes),
            ByteOrder::BigEndian => u16::from_be_bytes(bytes),
        }
    }
}

/// Returns the byte order of a text that begins with `head`; `None` if the text is not UTF-16. A
/// byte order mark shows the order. Without a mark, at least 60 percent of the text must be ASCII,
/// and the text must not contain control characters or other units that do not occur in text.
pub(crate) fn order(head: &[u8]) -> Option<ByteOrder> {
    /// Maximum number of bytes that are examined.
    const MAX_EXAMINED_BYTES: usize = 2048;
    /// Minimum number of units that are needed to determine the byte order.
    const MIN_EXAMINED_UNITS: usize = 4;
    match head {
        // UTF-32 begins with these bytes, too.
        [0xff, 0xfe, 0, 0, ..] => return None,
        [0xff, 0xfe, ..] => return Some(ByteOrder::LittleEndian),
        [0xfe, 0xff, ..] => return Some(ByteOrder::BigEndian),
        _ => {}
    }
    let (pairs, _) = head[..head.len().min(MAX_EXAMINED_BYTES)].as_chunks();
    let is_text = |order: &ByteOrder| {
        let units = pairs.iter().map(|&pair| order.unit(pair));
        let (mut ascii, mut all) = (0, 0);
        for unit in units {
            match unit {
                0x20..0x7f | 0x09..=0x0d | 0x1b => ascii += 1,
                0..0x20 | 0x7f | 0xfffe.. => return false,
                _ => {}
            }
            all += 1;
        }
        all >= MIN_EXAMINED_UNITS && ascii * 10 >= all * 6
    };
    let orders = [ByteOrder::LittleEndian, ByteOrder::BigEndian];
    orders.into_iter().find(is_text)
}

/// Reader that converts a stream of UTF-16 to UTF-8. Units that are not a character become U+FFFD.
/// A byte order mark is kept.
pub(crate) struct Utf16Reader<R> {
    inner: R,
    order: ByteOrder,
    /// Bytes that were read but not decoded: half a unit, or the first half of a surrogate pair.
    rest: Vec<u8>,
    text: String,
    /// Number of bytes of `text` that were returned to the caller.
    given: usize,
    at_end: bool,
}

impl<R: Read> Utf16Reader<R> {
    pub(crate) fn new(inner: R, order: ByteOrder) -> Self {
        Self {
            inner,
            order,
            rest: Vec::new(),
            text: String::new(),
            given: 0,
            at_end: false,
        }
    }

    /// Decodes the next chunk into `text`.
    fn decode(&mut self) -> io::Result<()> {
        let begin = self.rest.len();
        self.rest.resize(begin + CHUNK_SIZE, 0);
        let read = loop {
            match self.inner.read(&mut self.rest[begin..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.rest.truncate(begin);
                    return Err(error);
                }
                Ok(read) => break read,
            }
        };
        self.rest.truncate(begin + read);
        self.at_end = read == 0;
        let (pairs, _) = self.rest.as_chunks();
        let mut units: Vec<u16> = pairs.iter().map(|&pair| self.order.unit(pair)).collect();
        // The other half of a surrogate pair is still to come.
        if !self.at_end {
            units.pop_if(|unit| (0xd800..0xdc00).contains(unit));
        }
        self.text.clear();
        self.given = 0;
        let characters = char::decode_utf16(units.iter().copied());
        self.text
            .extend(characters.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
        self.rest.drain(..2 * units.len());
        if self.at_end && !self.rest.is_empty() {
            self.rest.clear();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf16Reader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.len() && !self.at_end {
            self.decode()?;
        }
        let text = &self.text.as_bytes()[self.given..];
        let given = text.len().min(buf.len());
        buf[..given].copy_from_slice(&text[..given]);
        self.given += given;
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a text in this byte order.
    pub(crate) fn encoded(text: &str, order: ByteOrder) -> Vec<u8> {
        let bytes = |unit: u16| match order {
            ByteOrder::LittleEndian => unit.to_le_bytes(),
            ByteOrder::BigEndian => unit.to_be_bytes(),
        };
        text.encode_utf16().flat_map(bytes).collect()
    }

    /// Reader that returns a few bytes at a time, so that units and surrogate pairs are split.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buf.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn text_is_text_however_it_arrives() {
        let text = "main;größe;\u{1f600}\u{1f601} 7\r\n".repeat(50);
        for order in [ByteOrder::LittleEndian, ByteOrder::BigEndian] {
            let bytes = encoded(&text, order);
            assert_eq!(self::order(&bytes), Some(order));
            for size in [1, 2, 3, 5, 1 << 20] {
                let mut found = String::new();
                let mut stream = Utf16Reader::new(Slow(&bytes, size), order);
                stream.read_to_string(&mut found).unwrap();
                assert_eq!(found, text, "{size}");
            }
        }
    }

    #[test]
    fn what_is_no_character_is_replaced() {
        let table: [(&[u8], &str); 4] = [
            (b"a\0\x3d\xd8b\0", "a\u{fffd}b"),
            (b"a\0\x3d\xd8", "a\u{fffd}"),
            (b"a\0b", "a\u{fffd}"),
            (b"", ""),
        ];
        for (bytes, expected) in table {
            let mut found = String::new();
            let mut stream = Utf16Reader::new(bytes, ByteOrder::LittleEndian);
            stream.read_to_string(&mut found).unwrap();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn other_files_are_not_taken_for_it() {
        let table: [(&[u8], Option<ByteOrder>); 8] = [
            (b"\xff\xfem\0", Some(ByteOrder::LittleEndian)),
            (b"\xfe\xff\0m", Some(ByteOrder::BigEndian)),
            (b"m\0a\0i\0n\0", Some(ByteOrder::LittleEndian)),
            (b"\0m\0a\0i\0n", Some(ByteOrder::BigEndian)),
            (b"\xff\xfe\0\0m\0\0\0", None),
            (b"main;f 7\n", None),
            (b"\x0a\x04\x08\x01\x10\x02\x12\x04", None),
            (b"a\0\0\0b\0\0\0c\0\0\0", None),
        ];
        for (bytes, expected) in table {
            assert_eq!(order(bytes), expected, "{bytes:?}");
        }
    }
}
