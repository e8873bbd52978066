//! Unpacks gzip, zstd and lz4, and limits the length of the result.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use heapprof_profile::InflateReader;
use lz4_flex::frame::FrameDecoder as Lz4Decoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::FormatError;

const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";
const LZ4_MAGIC: &[u8] = b"\x04\x22\x4d\x18";

/// Fills `head` with up to `most` bytes of the stream. If the stream fails, the bytes that were
/// read stay in `head`.
pub(crate) fn read_head(reader: &mut impl Read, most: usize, head: &mut Vec<u8>) -> io::Result<()> {
    reader.take(most as u64).read_to_end(head).map(|_| ())
}

/// Returns the unpacked beginning of a file that begins with `head`. The result is empty if the
/// file is damaged there.
pub(crate) fn plain_head(head: &[u8], most: usize) -> Vec<u8> {
    let mut plain = Vec::new();
    // The head is only a part of the file, so an error at its end has no meaning.
    if let Ok(mut stream) = plain_stream(Vec::new(), head) {
        let _ = read_head(&mut stream, most, &mut plain);
    }
    plain
}

/// Whether a file that begins with `head` is gzipped.
pub(crate) fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(GZIP_MAGIC)
}

/// Whether a file that begins with `head` is packed by zstd. `heapprof-profile` can't read such
/// files.
pub(crate) fn is_zstd(head: &[u8]) -> bool {
    head.starts_with(ZSTD_MAGIC)
}

/// Whether a file that begins with `head` is packed by lz4 in the frame format.
pub(crate) fn is_lz4(head: &[u8]) -> bool {
    head.starts_with(LZ4_MAGIC)
}

/// Whether a file that begins with `head` is packed by gzip, zstd or lz4.
pub(crate) fn is_packed(head: &[u8]) -> bool {
    is_gzip(head) || is_zstd(head) || is_lz4(head)
}

/// Returns the unpacked bytes of a file as a stream. `head` holds the file's first bytes, and
/// `rest` reads the bytes after them.
pub(crate) fn plain_stream<'a, R: Read + 'a>(
    head: Vec<u8>,
    rest: R,
) -> Result<Box<dyn Read + 'a>, FormatError> {
    let mut file = Cursor::new(head).chain(rest);
    let mut magic = Vec::new();
    read_head(&mut file, 4, &mut magic)?;
    let whole = Cursor::new(magic.clone()).chain(file);
    Ok(match () {
        () if is_gzip(&magic) => Box::new(InflateReader::new(whole)?),
        () if is_zstd(&magic) => Box::new(ZstdReader::new(whole)),
        () if is_lz4(&magic) => Box::new(Lz4Reader::new(whole)),
        () => Box::new(whole),
    })
}

/// Number of lz4 frames that a file of any size may have. Each `MIN_BYTES_PER_FRAME` bytes allow
/// one more frame. The limit is needed because preparing a decoder's buffers takes longer than
/// decoding a short frame.
const MIN_FRAME_LIMIT: u64 = 1024;
const MIN_BYTES_PER_FRAME: u64 = 64 << 10;

/// Reader of frames of lz4, one after the other.
struct Lz4Reader<R: Read> {
    /// Number of frames before the current one. The next field is the number of bytes that all
    /// frames were unpacked to.
    frames: u64,
    given: u64,
    /// Decoder of the current frame; `None` after an error.
    frame: Option<Lz4Decoder<EndTrackingReader<R>>>,
}

impl<R: Read> Lz4Reader<R> {
    fn new(file: R) -> Self {
        let file = EndTrackingReader {
            file: BufReader::with_capacity(128 << 10, file),
            beyond_its_end: false,
        };
        Self {
            frames: 0,
            given: 0,
            frame: Some(Lz4Decoder::new(file)),
        }
    }
}

impl<R: Read> Read for Lz4Reader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(mut frame) = self.frame.take() else {
                return Ok(0);
            };
            let n = frame.read(buf).map_err(|error| match error.kind() {
                // The decoder's own errors are of these kinds. Errors of the file are returned
                // unchanged.
                ErrorKind::UnexpectedEof => damaged_lz4("it ends within a frame"),
                ErrorKind::Other | ErrorKind::InvalidData => damaged_lz4(error),
                _ => error,
            })?;
            if n > 0 || buf.is_empty() {
                self.given += n as u64;
                self.frame = Some(frame);
                return Ok(n);
            }
            // The decoder also reports the end of a frame if the file ends.
            let mut file = frame.into_inner();
            if file.beyond_its_end {
                return Err(damaged_lz4("it ends within a frame"));
            }
            if retry(|| file.file.fill_buf().map(<[u8]>::is_empty))? {
                return Ok(0);
            }
            // Each frame gets a new decoder, whose buffers have the size that the frame asks for:
            // up to 4 MiB for one byte.
            self.frames += 1;
            if self.frames > MIN_FRAME_LIMIT + self.given / MIN_BYTES_PER_FRAME {
                return Err(damaged_lz4("it has too many frames with too few bytes"));
            }
            self.frame = Some(Lz4Decoder::new(file));
        }
    }
}

/// A file that records whether bytes beyond its end were requested.
struct EndTrackingReader<R> {
    file: BufReader<R>,
    beyond_its_end: bool,
}

impl<R: Read> Read for EndTrackingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = retry(|| self.file.read(buf))?;
        self.beyond_its_end |= n == 0 && !buf.is_empty();
        Ok(n)
    }
}

fn damaged_lz4(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(FormatError::Lz4(error.to_string()))
}

/// Reader of frames of zstd, one after the other.
struct ZstdReader<R: Read> {
    file: BufReader<R>,
    frame: Option<Box<FrameDecoder>>,
}

impl<R: Read> ZstdReader<R> {
    fn new(file: R) -> Self {
        Self {
            file: BufReader::with_capacity(128 << 10, file),
            frame: None,
        }
    }

    /// Begins the next frame. Returns false at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !retry(|| self.file.fill_buf().map(|rest| rest.is_empty()))? {
            // Each frame gets a new decoder, whose buffers grow with the data. A reused decoder
            // would take as much memory as the header claims.
            let mut decoder = FrameDecoder::new();
            match decoder.init(&mut self.file) {
                Ok(()) => {
                    self.frame = Some(Box::new(decoder));
                    return Ok(true);
                }
                // Such a frame is for other programs. The format requires that it is skipped.
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

impl<R: Read> Read for ZstdReader<R> {
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
                return Err(damaged("its checksum does not match"));
            }
            self.frame = None;
        }
    }
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(FormatError::Zstd(error.to_string()))
}

/// Reader that counts the bytes that are read from a file.
pub(crate) struct CountingReader<'a, R> {
    pub(crate) inner: R,
    pub(crate) count: &'a Cell<u64>,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count.set(self.count.get() + n as u64);
        Ok(n)
    }
}

/// Divisor of the limit for the inflated size. A packed file of any size may inflate to the limit
/// divided by this number.
const UNCHECKED_LIMIT_DIVISOR: u64 = 16;
/// Maximum ratio of unpacked length to file size for texts beyond the length that is always
/// allowed. Texts of tracers have a ratio of 10 to 100. A text that only repeats one line has a
/// ratio of 20,000.
const MAX_INFLATION_RATIO: u64 = 1000;

/// Reader that fails if its stream is longer than `limit`, or far longer than the packed file that
/// the stream comes from.
pub(crate) struct LimitedReader<'a, R> {
    inner: R,
    limit: u64,
    given: u64,
    /// Number of bytes that were read from the packed file; `None` if the file is not packed.
    packed: Option<&'a Cell<u64>>,
}

impl<'a, R: Read> LimitedReader<'a, R> {
    pub(crate) fn new(inner: R, limit: u64, packed: Option<&'a Cell<u64>>) -> Self {
        Self {
            inner,
            limit,
            given: 0,
            packed,
        }
    }

    fn check(&self) -> Result<(), FormatError> {
        let limit = self.limit;
        if self.given > limit {
            return Err(heapprof_profile::Error::TooLarge { limit }.into());
        }
        let allowed = |packed: &Cell<u64>| packed.get().saturating_mul(MAX_INFLATION_RATIO);
        let any = limit / UNCHECKED_LIMIT_DIVISOR;
        match self.packed {
            Some(packed) if self.given > any.max(allowed(packed)) => Err(FormatError::TooDense {
                bytes: any,
                times: MAX_INFLATION_RATIO,
                limit: limit.saturating_mul(UNCHECKED_LIMIT_DIVISOR),
            }),
            _ => Ok(()),
        }
    }
}

impl<R: Read> Read for LimitedReader<'_, R> {
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
    use crate::{FormatReadOptions, read};

    /// Makes a frame of zstd with a text, and then `blocks` blocks of 128 KiB of empty lines. Each
    /// block takes four bytes.
    fn empty_lines(text: &[u8], blocks: usize) -> Vec<u8> {
        let header = |kind: u32, size: usize, last: bool| {
            let header = u32::from(last) | kind << 1 | (size as u32) << 3;
            header.to_le_bytes()[..3].to_vec()
        };
        let mut frame = [
            ZSTD_MAGIC,
            &[0, 7 << 3],
            &header(0, text.len(), false),
            text,
        ]
        .concat();
        for block in 1..=blocks {
            frame.extend(header(1, 128 << 10, block == blocks));
            frame.push(b'\n');
        }
        frame
    }

    /// Makes an lz4 frame with blocks that are not packed, and an end mark.
    fn lz4(texts: &[&[u8]], size: u8) -> Vec<u8> {
        let mut frame = [LZ4_MAGIC, &[0x60, size << 4]].concat();
        let sum = match size {
            4 => 0x82,
            _ => 0x73,
        };
        frame.push(sum);
        for text in texts {
            frame.extend((1 << 31 | text.len() as u32).to_le_bytes());
            frame.extend(*text);
        }
        frame.extend([0; 4]);
        frame
    }

    #[test]
    fn frames_of_lz4_follow_each_other() {
        let (first, second) = (lz4(&[b"main;f ", b"1\n"], 7), lz4(&[b"main;g 2\n"], 4));
        let both = [&first[..], &second].concat();
        let profile = read(&both[..], &FormatReadOptions::default())
            .unwrap()
            .profile;
        assert_eq!(
            crate::profile_text::samples(&profile),
            ["main;f 1", "main;g 2"]
        );
        for at in 8..both.len() {
            let read = read(&both[..at], &FormatReadOptions::default());
            if at == first.len() {
                assert!(read.is_ok());
                continue;
            }
            let error = read.unwrap_err().to_string();
            assert!(
                error.starts_with("the lz4 data is damaged ("),
                "{at}: {error}"
            );
        }
        let damaged = [&both[..], b"\x01\x02\x03\x04\x05\x06\x07\x08"].concat();
        let error = read(&damaged[..], &FormatReadOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("copy or download it again"), "{error}");
    }

    /// Checks that the number of lz4 frames is limited. Each frame needs a decoder with buffers of
    /// megabytes.
    #[test]
    fn many_small_frames_of_lz4_are_too_many() {
        let file = |frames: usize| [&lz4(&[b"main;f 1\n"], 4)[..]].repeat(frames).concat();
        assert!(read(&file(1000)[..], &FormatReadOptions::default()).is_ok());
        let error = read(&file(3000)[..], &FormatReadOptions::default()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("too many frames with too few bytes"),
            "{error}"
        );
    }

    /// Checks that decoding ends early if a text is packed far too well. 182 KB of blocks of empty
    /// lines once took 12 s.
    #[test]
    fn text_that_is_packed_too_well_ends_early() {
        let file = empty_lines(b"v 10400 3\nX ./app\n", 64);
        let options = |limit: u64| FormatReadOptions::default().max_inflated(limit);
        let error = read(&file[..], &options(16 << 20)).unwrap_err();
        let enough = |limit: u64| limit == 268_435_456;
        assert!(matches!(error, FormatError::TooDense { limit, .. } if enough(limit)));
        assert_eq!(
            error.to_string(),
            "inflates to more than 1048576 bytes and 1000 times its own size, which would take too \
             long"
        );
        assert!(read(&file[..], &options(268_435_456)).is_ok());
        // Text that is not packed has the whole limit.
        let plain = [&b"v 10400 3\n"[..], &vec![b'\n'; 8 << 20]].concat();
        assert!(read(&plain[..], &options(16 << 20)).is_ok());
    }
}
