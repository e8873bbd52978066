//! Unpacks gzip and zstd, and enforces the limit on how much may come out.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use heapprof_profile::Inflate;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::Error;

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// Fills `head` with up to `most` bytes of the stream. What was read stays in `head` if the stream
/// fails.
pub(crate) fn read_head(reader: &mut impl Read, most: usize, head: &mut Vec<u8>) -> io::Result<()> {
    reader.take(most as u64).read_to_end(head).map(|_| ())
}

/// The plain bytes at the beginning of a file that begins with `head`. There are none if the file
/// is damaged there.
pub(crate) fn plain_head(head: &[u8], most: usize) -> Vec<u8> {
    let mut plain = Vec::new();
    // The head is cut off, so an error at its end says nothing.
    if let Ok(mut stream) = plain_stream(Vec::new(), head) {
        let _ = read_head(&mut stream, most, &mut plain);
    }
    plain
}

/// Whether a file that begins with `head` is gzipped.
pub(crate) fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(GZIP)
}

/// Whether a file that begins with `head` is packed by zstd, which `heapprof-profile` does not
/// know.
pub(crate) fn is_zstd(head: &[u8]) -> bool {
    head.starts_with(ZSTD)
}

/// The plain bytes of a file. `head` holds its first bytes.
pub(crate) fn plain_stream<'a, R: Read + 'a>(
    head: Vec<u8>,
    rest: R,
) -> Result<Box<dyn Read + 'a>, Error> {
    let mut file = Cursor::new(head).chain(rest);
    let mut magic = Vec::new();
    read_head(&mut file, 4, &mut magic)?;
    let (gzip, zstd) = (is_gzip(&magic), is_zstd(&magic));
    let file = Cursor::new(magic).chain(file);
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(Inflate::new(file)?),
        (_, true) => Box::new(Zstd::new(file)),
        _ => Box::new(file),
    })
}

/// Frames of zstd, one after the other.
struct Zstd<R: Read> {
    file: BufReader<R>,
    frame: Option<Box<FrameDecoder>>,
}

impl<R: Read> Zstd<R> {
    fn new(file: R) -> Self {
        Self {
            file: BufReader::with_capacity(128 << 10, file),
            frame: None,
        }
    }

    /// Begins the next frame; false at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !retry(|| self.file.fill_buf().map(|rest| rest.is_empty()))? {
            // Each frame gets a new decoder, whose buffers grow with the data. A used decoder takes
            // as much memory as the header claims.
            let mut decoder = FrameDecoder::new();
            match decoder.init(&mut self.file) {
                Ok(()) => {
                    self.frame = Some(Box::new(decoder));
                    return Ok(true);
                }
                // The format says that such a frame is for others and is to be skipped.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(
                        &mut (&mut self.file).take(u64::from(length)),
                        &mut io::sink(),
                    )?;
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(frame) = &mut self.frame else {
                match self.next_frame()? {
                    true => continue,
                    false => return Ok(0),
                }
            };
            while frame.can_collect() == 0 && !frame.is_finished() {
                frame
                    .decode_blocks(&mut self.file, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(damaged)?;
            }
            let n = frame.read(buf)?;
            if n > 0 {
                return Ok(n);
            }
            if let Some(sum) = frame.get_checksum_from_data()
                && Some(sum) != frame.get_calculated_checksum()
            {
                return Err(damaged("its checksum is another"));
            }
            self.frame = None;
        }
    }
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(Error::Zstd(error.to_string()))
}

/// Counts the bytes of a file as they are read.
pub(crate) struct Counted<'a, R> {
    pub(crate) inner: R,
    pub(crate) count: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count.set(self.count.get() + n as u64);
        Ok(n)
    }
}

/// A packed text may be this part of the limit, one in so many, however small its file is.
const PART_FOR_ANY: u64 = 16;
/// Beyond that a packed text may be so many times as long as its file. Texts of tracers are packed
/// to a tenth or a hundredth. A text that repeats one line forever is packed to one part in twenty
/// thousand.
const TIMES_ITS_FILE: u64 = 1000;

/// Ends a stream with an error if it is longer than `limit`, or far longer than the file that it
/// comes from.
pub(crate) struct Limited<'a, R> {
    inner: R,
    limit: u64,
    given: u64,
    /// How many bytes of a packed file were read.
    packed: Option<&'a Cell<u64>>,
}

impl<'a, R: Read> Limited<'a, R> {
    pub(crate) fn new(inner: R, limit: u64, packed: Option<&'a Cell<u64>>) -> Self {
        Self {
            inner,
            limit,
            given: 0,
            packed,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let limit = self.limit;
        if self.given > limit {
            return Err(heapprof_profile::Error::TooLarge { limit }.into());
        }
        let allowed = |packed: &Cell<u64>| packed.get().saturating_mul(TIMES_ITS_FILE);
        let any = limit / PART_FOR_ANY;
        match self.packed {
            Some(packed) if self.given > any.max(allowed(packed)) => Err(Error::TooDense {
                bytes: any,
                times: TIMES_ITS_FILE,
                limit: limit.saturating_mul(PART_FOR_ANY),
            }),
            _ => Ok(()),
        }
    }
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.given += n as u64;
        self.check().map_err(io::Error::other)?;
        Ok(n)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, read};

    /// A frame of zstd with a text, and then so many blocks of 128 KiB of empty lines. Each block
    /// takes four bytes.
    fn empty_lines(text: &[u8], blocks: usize) -> Vec<u8> {
        let header = |kind: u32, size: usize, last: bool| {
            let header = u32::from(last) | kind << 1 | (size as u32) << 3;
            header.to_le_bytes()[..3].to_vec()
        };
        let mut frame = [ZSTD, &[0, 7 << 3], &header(0, text.len(), false), text].concat();
        for block in 1..=blocks {
            frame.extend(header(1, 128 << 10, block == blocks));
            frame.push(b'\n');
        }
        frame
    }

    /// 182 KB of such blocks once took 12 s.
    #[test]
    fn text_that_is_packed_too_well_ends_early() {
        let file = empty_lines(b"v 10400 3\nX ./app\n", 64);
        let options = |limit: u64| Options::default().max_inflated(limit);
        let error = read(&file[..], &options(16 << 20)).unwrap_err();
        let enough = |limit: u64| limit == 268_435_456;
        assert!(matches!(error, Error::TooDense { limit, .. } if enough(limit)));
        assert_eq!(
            error.to_string(),
            "inflates to more than 1048576 bytes and 1000 times its own size, which costs much time"
        );
        assert!(read(&file[..], &options(268_435_456)).is_ok());
        // Text that is not packed has the whole limit.
        let plain = [&b"v 10400 3\n"[..], &vec![b'\n'; 8 << 20]].concat();
        assert!(read(&plain[..], &options(16 << 20)).is_ok());
    }
}
