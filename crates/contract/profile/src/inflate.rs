//! Inflates a file to a stream of plain bytes: all gzip members one after the other, or a file
//! without gzip.

use std::io::{self, BufRead, BufReader, Chain, Cursor, ErrorKind, Read};

use flate2::bufread::GzDecoder;

use crate::error::{Error, GzipDefect};

/// Reader that counts the bytes read from the file, so that errors can give an offset.
struct OffsetReader<R> {
    inner: R,
    taken: u64,
}

impl<R: BufRead> Read for OffsetReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.taken += n as u64;
        Ok(n)
    }
}

impl<R: BufRead> BufRead for OffsetReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.taken += amount as u64;
        self.inner.consume(amount);
    }
}

type GzipFile<R> = OffsetReader<BufReader<Chain<Cursor<Vec<u8>>, R>>>;

enum InflateState<R: Read> {
    Plain(GzipFile<R>),
    Member(Box<GzDecoder<GzipFile<R>>>),
    Done,
}

/// Stream of the plain bytes of a gzipped or plain file. Its implementation of [`Read`] wraps a
/// gzip [`Error`] in an `io::Error`.
pub struct InflateReader<R: Read> {
    state: InflateState<R>,
    /// First bytes of the file, which show the kind of a file that is not a profile.
    head: Vec<u8>,
}

impl<R: Read> InflateReader<R> {
    /// Reads the first bytes and opens the gzip layer, if there is one.
    ///
    /// # Errors
    /// Returns [`Error::Empty`] when `reader` gives no bytes, and [`Error::Io`] when it fails.
    pub fn new(mut reader: R) -> Result<Self, Error> {
        let mut head = Vec::new();
        reader.by_ref().take(64).read_to_end(&mut head)?;
        if head.is_empty() {
            return Err(Error::Empty);
        }
        let gzipped = head.starts_with(&[0x1f, 0x8b]);
        let file = OffsetReader {
            inner: BufReader::with_capacity(128 << 10, Cursor::new(head.clone()).chain(reader)),
            taken: 0,
        };
        let state = match gzipped {
            true => InflateState::Member(Box::new(GzDecoder::new(file))),
            false => InflateState::Plain(file),
        };
        Ok(Self { state, head })
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether the file is gzipped. Then it has a checksum at its end.
    pub(crate) fn is_gzipped(&self) -> bool {
        self.head.starts_with(&[0x1f, 0x8b])
    }

    /// Fills some of `buf` and returns the number of bytes read; 0 means the end.
    pub(crate) fn fill(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        loop {
            match &mut self.state {
                InflateState::Plain(file) => return Ok(retry(|| file.read(buf))?),
                InflateState::Member(member) => {
                    let n = retry(|| member.read(buf))
                        .map_err(|error| gzip_error(error, member.get_ref().taken))?;
                    if n > 0 {
                        return Ok(n);
                    }
                    let InflateState::Member(member) =
                        std::mem::replace(&mut self.state, InflateState::Done)
                    else {
                        unreachable!("matched above")
                    };
                    self.state = next_member(member.into_inner())?;
                }
                InflateState::Done => return Ok(0),
            }
        }
    }
}

impl<R: Read> Read for InflateReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.fill(buf).map_err(|error| match error {
            Error::Io(error) => error,
            error => io::Error::other(error),
        })
    }
}

/// Returns the state after a gzip member: another member, or the end after zero padding. Anything
/// else is an error.
fn next_member<R: Read>(mut file: GzipFile<R>) -> Result<InflateState<R>, Error> {
    loop {
        match retry(|| file.fill_buf().map(|b| b.first().copied()))? {
            None => return Ok(InflateState::Done),
            Some(0x1f) => return Ok(InflateState::Member(Box::new(GzDecoder::new(file)))),
            Some(0) => file.consume(1),
            Some(_) => {
                return Err(Error::Gzip {
                    offset: file.taken,
                    defect: GzipDefect::TrailingJunk,
                });
            }
        }
    }
}

fn retry<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn gzip_error(error: io::Error, offset: u64) -> Error {
    let defect = match error.kind() {
        _ if error.raw_os_error().is_some() => return Error::Io(error),
        ErrorKind::UnexpectedEof => GzipDefect::Truncated,
        ErrorKind::InvalidInput | ErrorKind::InvalidData => GzipDefect::Corrupt(error.to_string()),
        _ => return Error::Io(error),
    };
    Error::Gzip { offset, defect }
}
