//! Reads the binary words at the beginning of a CPU profile: the header, and the samples up to the
//! end mark.
//!
//! A word has four or eight bytes in the byte order of the profiled program. The header is `0 3
//! KIND PERIOD 0`, where 3 is the number of words that follow. A sample is its count, the depth of
//! its stack, and the addresses. The end mark is the sample `0 1 0`.

use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};

use crate::error::FormatError;

/// Number of words in a header.
const HEADER_WORDS: usize = 5;
/// Largest number of bytes in a header.
pub(crate) const MAX_HEADER_BYTES: usize = HEADER_WORDS * 8;

/// Description of what writes the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuProfileKind {
    /// The profiler of gperftools. Addresses of callers are return addresses.
    Native,
    /// Google's Java agent. Addresses are numbers of frames, which the text after the words names.
    Java,
}

/// The size and byte order of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WordLayout {
    size: usize,
    is_big_endian: bool,
}

impl WordLayout {
    fn word(self, bytes: &[u8]) -> u64 {
        let digit = |word: u64, &byte: &u8| word << 8 | u64::from(byte);
        match self.is_big_endian {
            true => bytes.iter().fold(0, digit),
            false => bytes.iter().rev().fold(0, digit),
        }
    }
}

/// The facts that the header states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuProfileHeader {
    layout: WordLayout,
    pub(super) kind: CpuProfileKind,
    /// Time between two samples in microseconds.
    pub(super) period_micros: u64,
}

impl CpuProfileHeader {
    /// Reads the header at the beginning of a file; `None` if the file is no CPU profile.
    pub(super) fn find(head: &[u8]) -> Option<Self> {
        [(4, false), (4, true), (8, false), (8, true)]
            .into_iter()
            .find_map(|(size, is_big_endian)| {
                let layout = WordLayout {
                    size,
                    is_big_endian,
                };
                let bytes = head.get(..HEADER_WORDS * size)?;
                let words: Vec<u64> = bytes.chunks(size).map(|b| layout.word(b)).collect();
                let (kind, period_micros) = match words[..] {
                    [0, 3, 0, period, 0] => (CpuProfileKind::Native, period),
                    [0, 3, 1, period, 0] => (CpuProfileKind::Java, period),
                    _ => return None,
                };
                (period_micros > 0).then_some(Self {
                    layout,
                    kind,
                    period_micros,
                })
            })
    }
}

/// Reader of the words after the header, and of the text after the words.
pub(super) struct WordReader<'a> {
    input: BufReader<std::io::Chain<Cursor<Vec<u8>>, &'a mut dyn Read>>,
    layout: WordLayout,
    /// Number of bytes of the file that were read.
    offset: u64,
}

impl<'a> WordReader<'a> {
    /// Reads the header after `start` bytes of a file, and returns a reader of what follows.
    pub(super) fn open(
        stream: &'a mut dyn Read,
        start: u64,
    ) -> Result<(CpuProfileHeader, Self), FormatError> {
        let mut head = Vec::new();
        stream
            .take(MAX_HEADER_BYTES as u64)
            .read_to_end(&mut head)?;
        let header = CpuProfileHeader::find(&head).ok_or_else(|| FormatError::Byte {
            offset: start,
            defect: "expected the words `0 3 KIND PERIOD 0`, found something else".to_string(),
        })?;
        let layout = header.layout;
        let rest = head.split_off(HEADER_WORDS * layout.size);
        let reader = Self {
            input: BufReader::new(Cursor::new(rest).chain(stream)),
            layout,
            offset: start + head.len() as u64,
        };
        Ok((header, reader))
    }

    /// Returns the number of bytes of the file that were read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the reader of the text after the words.
    pub(super) fn text(&mut self) -> &mut dyn BufRead {
        &mut self.input
    }

    /// Returns the next word. The end of the file is an error, which names the missing word by
    /// `what`.
    pub(super) fn required(&mut self, what: &str) -> Result<u64, FormatError> {
        let word = self.next()?;
        word.ok_or_else(|| self.wrong(what, "the end of the file; copy or download it again"))
    }

    /// Returns the next word; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<u64>, FormatError> {
        let mut bytes = [0; 8];
        let size = self.layout.size;
        let mut have = 0;
        while have < size {
            match self.input.read(&mut bytes[have..size]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => {
                    let found = format!("the end of the file after {have}");
                    return Err(self.wrong(&format!("a word of {size} bytes"), found));
                }
                Ok(n) => have += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.offset += size as u64;
        Ok(Some(self.layout.word(&bytes[..size])))
    }

    /// Makes an error for data at the current position that is not as expected.
    pub(super) fn wrong(&self, expected: &str, found: impl std::fmt::Display) -> FormatError {
        FormatError::Byte {
            offset: self.offset,
            defect: format!("expected {expected}, found {found}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_size_and_order() {
        let words = |period: u64, kind: u64| [0, 3, kind, period, 0, 7, u64::from(u32::MAX)];
        let be4 = |word: u64| (word as u32).to_be_bytes().to_vec();
        let le4 = |word: u64| (word as u32).to_le_bytes().to_vec();
        let orders: [&dyn Fn(u64) -> Vec<u8>; 4] = [
            &|word| word.to_le_bytes().to_vec(),
            &|word| word.to_be_bytes().to_vec(),
            &le4,
            &be4,
        ];
        for bytes_of in orders {
            for (kind, expected) in [(0, CpuProfileKind::Native), (1, CpuProfileKind::Java)] {
                let bytes: Vec<u8> = words(10_000, kind).into_iter().flat_map(bytes_of).collect();
                let mut stream = &bytes[..];
                let (header, mut reader) = WordReader::open(&mut stream, 0).unwrap();
                assert_eq!((header.kind, header.period_micros), (expected, 10_000));
                assert_eq!(reader.next().unwrap(), Some(7));
                assert_eq!(reader.required("a word").unwrap(), u64::from(u32::MAX));
                assert_eq!(reader.next().unwrap(), None);
                assert_eq!(reader.offset(), bytes.len() as u64);
            }
            let header = |period, kind| {
                let bytes: Vec<u8> = words(period, kind).into_iter().flat_map(bytes_of).collect();
                CpuProfileHeader::find(&bytes).is_some()
            };
            assert!(header(1, 0) && !header(0, 0) && !header(1, 2));
        }
        assert_eq!(CpuProfileHeader::find(&[0; 40]), None);
        assert_eq!(CpuProfileHeader::find(&[0, 0, 0, 0, 3]), None);
    }

    #[test]
    fn the_end_comes_too_soon() {
        let bytes: Vec<u8> = [0u32, 3, 0, 1, 0, 7].map(u32::to_le_bytes).concat();
        let mut stream = &bytes[..22];
        let (_, mut reader) = WordReader::open(&mut stream, 0).unwrap();
        assert_eq!(
            reader.next().unwrap_err().to_string(),
            "byte 20: expected a word of 4 bytes, found the end of the file after 2"
        );
        let mut stream = &bytes[..20];
        let (_, mut reader) = WordReader::open(&mut stream, 0).unwrap();
        assert_eq!(
            reader.required("an address").unwrap_err().to_string(),
            "byte 20: expected an address, found the end of the file; copy or download it again"
        );
    }
}
