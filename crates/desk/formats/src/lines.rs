//! Reads the lines of a stream one at a time, counts them, and limits their length. Text is bytes,
//! because file names need not be UTF-8.

use std::borrow::Cow;
use std::io::{self, BufRead, ErrorKind, Read};

use crate::error::{FormatError, shortened};

/// Length of the longest line that is read. A stack of 100,000 frames is shorter.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;

/// Reader of a stream whose next bytes can be looked at, however few of them the stream gives at
/// once.
struct PeekReader<'a> {
    /// Bytes that were taken from the stream and come before it.
    front: Vec<u8>,
    inner: &'a mut dyn BufRead,
}

impl PeekReader<'_> {
    fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.front.len() < count {
            let buffer = match self.inner.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                break;
            }
            let taken = buffer.len().min(count - self.front.len());
            self.front.extend_from_slice(&buffer[..taken]);
            self.inner.consume(taken);
        }
        Ok(&self.front[..count.min(self.front.len())])
    }
}

impl Read for PeekReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.front.is_empty() {
            return self.inner.read(bytes);
        }
        let taken = (&self.front[..]).read(bytes)?;
        self.front.drain(..taken);
        Ok(taken)
    }
}

impl BufRead for PeekReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.front.is_empty() {
            true => self.inner.fill_buf(),
            false => Ok(&self.front),
        }
    }

    fn consume(&mut self, count: usize) {
        match self.front.is_empty() {
            true => self.inner.consume(count),
            false => drop(self.front.drain(..count)),
        }
    }
}

/// Reader of lines. [`advance`](Self::advance) goes to the next line, and [`line`](Self::line)
/// returns the current one.
pub(crate) struct LineReader<'a> {
    inner: PeekReader<'a>,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
    again: bool,
    /// Whether the current line ends with a line break. Otherwise it may be only the beginning of a
    /// line.
    is_ended: bool,
    at_end: bool,
}

impl<'a> LineReader<'a> {
    pub(crate) fn new(inner: &'a mut dyn BufRead) -> Self {
        Self {
            inner: PeekReader {
                front: Vec::new(),
                inner,
            },
            line: Vec::new(),
            number: 0,
            bytes: 0,
            again: false,
            is_ended: false,
            at_end: false,
        }
    }

    /// Goes to the next line. Returns false at the end of the file.
    pub(crate) fn advance(&mut self) -> Result<bool, FormatError> {
        if std::mem::take(&mut self.again) {
            return Ok(true);
        }
        if self.at_end {
            return Ok(false);
        }
        self.line.clear();
        self.number += 1;
        self.is_ended = false;
        loop {
            let buffer = match self.inner.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if buffer.is_empty() {
                if self.line.is_empty() {
                    self.at_end = true;
                    return Ok(false);
                }
                break;
            }
            let end = memchr::memchr(b'\n', buffer);
            let taken = end.unwrap_or(buffer.len());
            if self.line.len() + taken > MAX_LINE_BYTES {
                return Err(self.wrong(format!("a line of at most {} MiB", MAX_LINE_BYTES >> 20)));
            }
            self.line.extend_from_slice(&buffer[..taken]);
            let consumed = taken + usize::from(end.is_some());
            self.inner.consume(consumed);
            self.bytes += consumed as u64;
            if end.is_some() {
                self.is_ended = true;
                break;
            }
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(true)
    }

    /// Makes the next [`advance`](Self::advance) stay on the current line, so that another function
    /// can read the line.
    pub(crate) fn stay(&mut self) {
        self.again = !self.at_end;
    }

    /// Returns the current line without its line break. After the last line, the result is empty.
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }

    /// Whether the current line ends with a line break. Only the last line of a file may have none.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Returns the current line without white space around it.
    pub(crate) fn trimmed(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// Returns the current line as text. Bytes that are not UTF-8 become U+FFFD.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.line)
    }

    /// Returns the number of the current line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the total number of bytes in all lines up to the current one.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the rest of the stream, for formats that do not consist of lines.
    pub(crate) fn rest(&mut self) -> &mut dyn BufRead {
        &mut self.inner
    }

    /// Returns the first `count` bytes behind the current line, which are not read by this. There
    /// are fewer at the end of the file.
    pub(crate) fn peek(&mut self, count: usize) -> Result<&[u8], FormatError> {
        Ok(self.inner.peek(count)?)
    }

    /// Makes an error for a line that is not as expected, or for a file that ends too soon.
    #[cold]
    pub(crate) fn wrong(&self, expected: impl Into<Cow<'static, str>>) -> FormatError {
        match self.at_end {
            true => self.ended(expected),
            false => self.wrong_part(expected, shortened(&self.line)),
        }
    }

    /// Makes an error for a part of the current line that is not as expected.
    #[cold]
    pub(crate) fn wrong_part(
        &self,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
    ) -> FormatError {
        FormatError::Line {
            line: self.number(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Makes an error for a file that ends too soon.
    #[cold]
    pub(crate) fn ended(&self, expected: impl Into<Cow<'static, str>>) -> FormatError {
        self.wrong_part(expected, "the end of the file")
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn all(text: &[u8]) -> Vec<(u64, String)> {
        // A buffer of three bytes cuts lines everywhere.
        let mut input = BufReader::with_capacity(3, text);
        let mut lines = LineReader::new(&mut input);
        let mut found = Vec::new();
        while lines.advance().unwrap() {
            found.push((lines.number(), lines.text().into_owned()));
        }
        found
    }

    #[test]
    fn lines_end_as_they_like() {
        let table: [(&[u8], &[&str]); 6] = [
            (b"", &[]),
            (b"one", &["one"]),
            (b"one\ntwo\n", &["one", "two"]),
            (b"one\r\n\r\ntwo\r", &["one", "", "two"]),
            (b"\n\n", &["", ""]),
            (b"caf\xe9\nx", &["caf\u{fffd}", "x"]),
        ];
        for (text, expected) in table {
            let expected: Vec<(u64, String)> = (1..)
                .zip(expected.iter().map(|line| line.to_string()))
                .collect();
            assert_eq!(all(text), expected);
        }
    }

    #[test]
    fn a_line_can_be_read_again() {
        let mut input = &b"one\ntwo"[..];
        let mut lines = LineReader::new(&mut input);
        assert!(lines.advance().unwrap());
        lines.stay();
        assert!(lines.advance().unwrap());
        assert_eq!((lines.number(), lines.line()), (1, &b"one"[..]));
        assert!(lines.advance().unwrap());
        assert_eq!(
            lines.wrong("a three").to_string(),
            "line 2: expected a three, found \"two\""
        );
        assert!(!lines.advance().unwrap());
        assert_eq!(
            lines.ended("more").to_string(),
            "line 3: expected more, found the end of the file"
        );
    }

    #[test]
    fn lines_are_bounded() {
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        let mut input = &long[..MAX_LINE_BYTES];
        assert!(LineReader::new(&mut input).advance().unwrap());
        let mut input = BufReader::new(&long[..]);
        let error = LineReader::new(&mut input).advance().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("line 1: expected a line of at most 16 MiB, found \"xxx"),
            "{error}"
        );
    }
}
