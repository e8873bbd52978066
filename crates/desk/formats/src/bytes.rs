//! Reads the bytes of a binary format in order, and counts them so that errors can name a position.

use std::io::{self, ErrorKind, Read};

use crate::error::FormatError;

/// Number of bytes that are read at once.
const BUFFER_SIZE: usize = 128 << 10;

/// Reader of a binary file from its beginning to its end.
pub(crate) struct BinaryReader<'a> {
    stream: &'a mut dyn Read,
    buffer: Box<[u8]>,
    /// Position in `buffer` of the next byte to return. `end` is the end of the valid bytes in
    /// `buffer`.
    at: usize,
    end: usize,
    /// Number of bytes that were returned to the caller.
    offset: u64,
    /// Number of zeros that were read but not returned yet. `None` if zeros at the end of the file
    /// are data, not padding.
    zeros: Option<u64>,
}

impl<'a> BinaryReader<'a> {
    pub(crate) fn new(stream: &'a mut dyn Read) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER_SIZE].into_boxed_slice(),
            at: 0,
            end: 0,
            offset: 0,
            zeros: None,
        }
    }

    /// Treats zeros at the end of the file as padding, so that the file ends before the padding.
    pub(crate) fn without_padding(mut self) -> Self {
        self.zeros = Some(0);
        self
    }

    /// Returns how many bytes were read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next byte; `None` at the end of the file.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<u8>, FormatError> {
        if self.at < self.end && (self.zeros.is_none() || self.buffer[self.at] != 0) {
            let byte = self.buffer[self.at];
            if self.zeros.is_none_or(|zeros| zeros == 0) {
                self.at += 1;
                self.offset += 1;
                return Ok(Some(byte));
            }
        }
        self.next_slowly()
    }

    #[cold]
    fn next_slowly(&mut self) -> Result<Option<u8>, FormatError> {
        if self.zeros.is_none_or(|zeros| zeros == 0) {
            if !self.fill()? {
                return Ok(None);
            }
            let byte = self.buffer[self.at];
            self.at += 1;
            if byte != 0 || self.zeros.is_none() {
                self.offset += 1;
                return Ok(Some(byte));
            }
            let mut run = 1;
            loop {
                if !self.fill()? {
                    return Ok(None);
                }
                if self.buffer[self.at] != 0 {
                    break;
                }
                self.at += 1;
                run += 1;
            }
            self.zeros = Some(run);
        }
        self.zeros = self.zeros.map(|zeros| zeros.saturating_sub(1));
        self.offset += 1;
        Ok(Some(0))
    }

    /// Fills the buffer if it is empty. Returns false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        while self.at == self.end {
            self.at = 0;
            self.end = 0;
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(n) => self.end = n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns the next byte. The end of the file is an error, which names the missing part by
    /// `what`.
    pub(crate) fn byte(&mut self, what: &str) -> Result<u8, FormatError> {
        self.next()?.ok_or_else(|| self.ended(what))
    }

    /// Returns the next `N` bytes. The end of the file is an error, which names the missing part by
    /// `what`.
    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        for byte in &mut array {
            *byte = self.byte(what)?;
        }
        Ok(array)
    }

    /// Reads a little-endian number of four bytes.
    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Reads a little-endian number of eight bytes.
    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads a number with seven bits in each byte, the lowest first. The highest bit of a byte
    /// marks that more bytes follow.
    pub(crate) fn varint(&mut self, what: &str) -> Result<u64, FormatError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.wrong(what, "a number of more than ten bytes"))
    }

    /// Reads a signed number, whose lowest bit is its sign.
    pub(crate) fn signed(&mut self, what: &str) -> Result<i64, FormatError> {
        let value = self.varint(what)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads text up to the byte `end`, which is consumed, too. More than `most` bytes of text are
    /// an error.
    pub(crate) fn until(
        &mut self,
        end: u8,
        most: usize,
        what: &str,
    ) -> Result<Vec<u8>, FormatError> {
        let mut text = Vec::new();
        loop {
            match self.byte(what)? {
                byte if byte == end => return Ok(text),
                _ if text.len() == most => {
                    return Err(self.wrong(what, format!("more than {most} bytes")));
                }
                byte => text.push(byte),
            }
        }
    }

    /// Reads `length` bytes. A length of more than `most` is an error.
    pub(crate) fn take(
        &mut self,
        length: u64,
        most: u64,
        what: &str,
    ) -> Result<Vec<u8>, FormatError> {
        if length > most {
            return Err(self.wrong(what, format!("{length} bytes, more than {most}")));
        }
        // The length may be false, so memory grows only with the bytes that are there.
        let mut bytes = Vec::new();
        for _ in 0..length {
            bytes.push(self.byte(what)?);
        }
        Ok(bytes)
    }

    /// Makes an error for data at the current position that is not as expected.
    pub(crate) fn wrong(&self, expected: &str, found: impl std::fmt::Display) -> FormatError {
        FormatError::Byte {
            offset: self.offset,
            defect: format!("expected {expected}, found {found}"),
        }
    }

    /// Makes an error for a file that ends too soon.
    pub(crate) fn ended(&self, expected: &str) -> FormatError {
        self.wrong(expected, "the end of the file; copy or download it again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length() {
        let table: [(&[u8], Option<i64>); 6] = [
            (&[0], Some(0)),
            (&[1], Some(-1)),
            (&[0xd8, 0x04], Some(300)),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                Some(i64::MIN),
            ),
            (&[0xff], None),
            (&[0xff; 12], None),
        ];
        for (bytes, expected) in table {
            let mut stream = bytes;
            let read = BinaryReader::new(&mut stream).signed("a number");
            assert_eq!(read.ok(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn zeros_at_the_end_are_padding() {
        let file = [&[7, 0, 0, 8, 0][..], &vec![0; 3 * BUFFER_SIZE]].concat();
        let all = |padded: bool| {
            let mut stream = &file[..];
            let mut bytes = BinaryReader::new(&mut stream);
            if padded {
                bytes = bytes.without_padding();
            }
            let mut found = Vec::new();
            while let Some(byte) = bytes.next().unwrap() {
                found.push(byte);
            }
            assert_eq!(bytes.offset(), found.len() as u64);
            found
        };
        assert_eq!(all(true), [7, 0, 0, 8]);
        assert_eq!(all(false), file);
    }

    #[test]
    fn lengths_are_bounded() {
        let mut stream = &b"abc"[..];
        let mut bytes = BinaryReader::new(&mut stream);
        let error = bytes.take(u64::MAX, 16, "a name").unwrap_err();
        assert_eq!(
            error.to_string(),
            "byte 0: expected a name, found 18446744073709551615 bytes, more than 16"
        );
        let error = bytes.until(b'\0', 2, "a name").unwrap_err();
        assert_eq!(
            error.to_string(),
            "byte 3: expected a name, found more than 2 bytes"
        );
        let error = bytes.byte("a name").unwrap_err();
        assert_eq!(
            error.to_string(),
            "byte 3: expected a name, found the end of the file; copy or download it again"
        );
    }
}
