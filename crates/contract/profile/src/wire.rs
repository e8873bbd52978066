//! Protobuf's wire format: fields from a stream ([`WireStream`]) and from one message in memory
//! ([`MessageFields`]).
//!
//! Source: protobuf.dev, "Encoding". Bits of a varint beyond the 64th are discarded, as protobuf
//! prescribes.

use std::io::Read;

use crate::error::{Error, ProfileElement, WireDefect};
use crate::inflate::InflateReader;

/// A field's value, by its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

impl WireValue<'_> {
    fn name(&self) -> &'static str {
        match self {
            WireValue::Varint(_) => "a number",
            WireValue::Fixed64(_) => "a 64-bit word",
            WireValue::Fixed32 => "a 32-bit word",
            WireValue::Bytes(_) => "bytes",
        }
    }
}

/// Reads the varint at `*pos` and moves `*pos` past it. An error leaves `*pos` unchanged.
#[inline]
pub(crate) fn varint(data: &[u8], pos: &mut usize) -> Result<u64, WireDefect> {
    match data.get(*pos..).unwrap_or_default() {
        [a @ 0..0x80, ..] => {
            *pos += 1;
            Ok(u64::from(*a))
        }
        [a, b @ 0..0x80, ..] => {
            *pos += 2;
            Ok(u64::from(a & 0x7f) | u64::from(*b) << 7)
        }
        [a, b, c @ 0..0x80, ..] => {
            *pos += 3;
            Ok(u64::from(a & 0x7f) | u64::from(b & 0x7f) << 7 | u64::from(*c) << 14)
        }
        _ => long_varint(data, pos),
    }
}

fn long_varint(data: &[u8], pos: &mut usize) -> Result<u64, WireDefect> {
    let mut value = 0u64;
    for (i, &byte) in data[*pos..].iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * i as u32);
        if byte < 0x80 {
            *pos += i + 1;
            return Ok(value);
        }
    }
    match data.len() - *pos {
        0..10 => Err(WireDefect::Truncated { field: 0 }),
        _ => Err(WireDefect::Varint),
    }
}

/// Returns the varint at the beginning of eight bytes, and its length; `None` if there are fewer
/// bytes or the varint is longer. No branch depends on the length, which is as good as random in
/// many profiles.
#[inline]
fn varint_in_word(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    // The last byte of a varint is the one whose top bit is not set.
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return None;
    }
    // The lower seven bits of the bytes are joined in twos, then in fours, then all eight.
    let word = word & (ends ^ (ends - 1));
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    let number = word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4;
    Some((number, ends.trailing_zeros() as usize / 8 + 1))
}

/// Returns the varint at the beginning of `bytes` and its length, if it can be read quickly: it is
/// one byte long, or at least eight bytes are left.
#[inline]
fn quick_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    match bytes {
        [number @ 0..0x80, ..] => Some((u64::from(*number), 1)),
        _ => varint_in_word(bytes),
    }
}

/// Returns the defect of a varint, with the number of its field added.
fn in_field(field: u32, defect: WireDefect) -> WireDefect {
    match defect {
        WireDefect::Truncated { .. } => WireDefect::Truncated { field },
        other => other,
    }
}

/// Returns the value of a field of 4 or 8 bytes.
fn fixed(bytes: &[u8]) -> WireValue<'static> {
    match bytes.first_chunk() {
        Some(word) => WireValue::Fixed64(u64::from_le_bytes(*word)),
        None => WireValue::Fixed32,
    }
}

fn split_tag(tag: u64) -> Result<(u32, u8), WireDefect> {
    match tag >> 3 {
        field @ 1..=0x1fff_ffff => Ok((field as u32, (tag & 7) as u8)),
        field => Err(WireDefect::FieldNumber(field)),
    }
}

/// Reads the fields of a message that is in memory.
pub(crate) struct MessageFields<'a> {
    data: &'a [u8],
    pos: usize,
    /// Offset of `data` in the profile.
    base: u64,
    object: ProfileElement,
}

impl<'a> MessageFields<'a> {
    pub(crate) fn new(data: &'a [u8], base: u64, object: ProfileElement) -> Self {
        Self {
            data,
            pos: 0,
            base,
            object,
        }
    }

    /// Returns the offset of the next field in the profile.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.pos as u64
    }

    #[cold]
    fn error(&self, at: usize, defect: WireDefect) -> Error {
        Error::Wire {
            offset: self.base + at as u64,
            object: self.object,
            defect,
            hint: "",
        }
    }

    /// Returns the next field; `None` at the end.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, WireValue<'a>)>, Error> {
        // Nearly all fields are numbers or a few bytes, with a tag of one byte. Those are read
        // here, inline.
        match self.data.get(self.pos..).unwrap_or_default() {
            [] => Ok(None),
            [tag @ 8..0x80, length @ 0..0x80, rest @ ..]
                if tag & 7 == 2 && usize::from(*length) <= rest.len() =>
            {
                let length = usize::from(*length);
                self.pos += 2 + length;
                Ok(Some((
                    u32::from(tag >> 3),
                    WireValue::Bytes(&rest[..length]),
                )))
            }
            [tag @ 8..0x80, rest @ ..] if tag & 7 == 0 => match quick_varint(rest) {
                Some((number, length)) => {
                    self.pos += 1 + length;
                    Ok(Some((u32::from(tag >> 3), WireValue::Varint(number))))
                }
                None => self.any_field().map(Some),
            },
            _ => self.any_field().map(Some),
        }
    }

    #[inline(never)]
    fn any_field(&mut self) -> Result<(u32, WireValue<'a>), Error> {
        let start = self.pos;
        self.field(start)
            .map_err(|defect| self.error(start, defect))
    }

    fn field(&mut self, start: usize) -> Result<(u32, WireValue<'a>), WireDefect> {
        let mut pos = start;
        let (field, wire_type) = split_tag(varint(self.data, &mut pos)?)?;
        let named = |defect| in_field(field, defect);
        let value = match wire_type {
            0 => WireValue::Varint(varint(self.data, &mut pos).map_err(named)?),
            1 | 5 => {
                let size = if wire_type == 1 { 8 } else { 4 };
                if self.data.len() - pos < size {
                    return Err(WireDefect::Truncated { field });
                }
                let value = fixed(&self.data[pos..pos + size]);
                pos += size;
                value
            }
            2 => {
                let length = varint(self.data, &mut pos).map_err(named)?;
                let left = (self.data.len() - pos) as u64;
                if length > left {
                    return Err(WireDefect::Length {
                        field,
                        length,
                        left,
                    });
                }
                let bytes = &self.data[pos..pos + length as usize];
                pos += length as usize;
                WireValue::Bytes(bytes)
            }
            _ => return Err(WireDefect::WireType { field, wire_type }),
        };
        self.pos = pos;
        Ok((field, value))
    }

    #[cold]
    fn mismatch(&self, field: u32, value: WireValue<'_>, expected: &'static str) -> Error {
        let found = value.name();
        let at = self.data.len().min(self.pos.saturating_sub(1));
        self.error(
            at,
            WireDefect::Mismatch {
                field,
                found,
                expected,
            },
        )
    }

    pub(crate) fn number(&self, field: u32, value: WireValue<'_>) -> Result<u64, Error> {
        match value {
            WireValue::Varint(number) => Ok(number),
            other => Err(self.mismatch(field, other, "a number")),
        }
    }

    pub(crate) fn bytes(&self, field: u32, value: WireValue<'a>) -> Result<&'a [u8], Error> {
        match value {
            WireValue::Bytes(bytes) => Ok(bytes),
            other => Err(self.mismatch(field, other, "bytes")),
        }
    }

    /// Reads a repeated 64-bit word: a single word, or several packed ones.
    pub(crate) fn words(
        &self,
        field: u32,
        value: WireValue<'a>,
        mut each: impl FnMut(u64),
    ) -> Result<(), Error> {
        match value {
            WireValue::Fixed64(word) => each(word),
            WireValue::Bytes(packed) => {
                let (words, rest) = packed.as_chunks();
                words
                    .iter()
                    .for_each(|&word| each(u64::from_le_bytes(word)));
                if !rest.is_empty() {
                    let at = self.pos.saturating_sub(rest.len());
                    return Err(self.error(at, WireDefect::Truncated { field }));
                }
            }
            other => return Err(self.mismatch(field, other, "64-bit words")),
        }
        Ok(())
    }

    /// Reads a repeated number: a single number, or several packed ones. `value` may be the whole
    /// field or its last bytes.
    #[inline]
    pub(crate) fn numbers(
        &self,
        field: u32,
        value: WireValue<'a>,
        mut each: impl FnMut(u64),
    ) -> Result<(), Error> {
        match value {
            WireValue::Varint(number) => each(number),
            WireValue::Bytes(packed) => {
                let mut rest = packed;
                while !rest.is_empty() {
                    let (number, length) = match quick_varint(rest) {
                        Some(quick) => quick,
                        None => {
                            let mut length = 0;
                            let number = varint(rest, &mut length).map_err(|defect| {
                                // The packed numbers end where the field does.
                                let begin = self.pos.saturating_sub(packed.len());
                                let at = begin + packed.len() - rest.len();
                                self.error(at, in_field(field, defect))
                            })?;
                            (number, length)
                        }
                    };
                    each(number);
                    rest = &rest[length..];
                }
            }
            other => return Err(self.mismatch(field, other, "a number or packed numbers")),
        }
        Ok(())
    }
}

/// Reads the top-level fields of a profile from a stream, through one buffer.
pub(crate) struct WireStream<R: Read> {
    input: InflateReader<R>,
    buf: Vec<u8>,
    pos: usize,
    end: usize,
    /// Offset of `buf` in the profile.
    base: u64,
    limit: u64,
    max_memory: u64,
    /// Number of bytes of `max_memory` that the data read so far has not used. At most half of them
    /// are for `buf`, because its decoded content takes memory, too.
    pub(crate) room: u64,
    head: Vec<u8>,
}

/// Number of leading bytes that are stored, to recognize the kind of the file.
const HEAD_SIZE: usize = 64;
const CHUNK_SIZE: usize = 128 << 10;
/// Maximum number of bytes of a damaged file that are read to reach the checksum at its end.
const MAX_DRAINED_BYTES: u64 = 256 << 20;

impl<R: Read> WireStream<R> {
    /// Makes a stream of a file that may inflate to `limit` bytes and take `max_memory` bytes of
    /// memory.
    pub(crate) fn new(input: InflateReader<R>, limit: u64, max_memory: u64) -> Self {
        Self {
            input,
            buf: vec![0; CHUNK_SIZE],
            pos: 0,
            end: 0,
            base: 0,
            limit,
            max_memory,
            room: max_memory,
            head: Vec::new(),
        }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.base + self.pos as u64
    }

    /// Returns the first bytes of the file, and the first bytes of its plain content.
    pub(crate) fn heads(&self) -> (&[u8], &[u8]) {
        (self.input.head(), &self.head)
    }

    /// Reads more data of a gzipped file and discards it, so that an error in this data or its
    /// checksum is reported.
    pub(crate) fn drain(&mut self) -> Result<(), Error> {
        let mut rest = self.base + self.end as u64;
        let end = rest.saturating_add(MAX_DRAINED_BYTES).min(self.limit);
        let mut scratch = vec![0; CHUNK_SIZE];
        while rest <= end && self.input.is_gzipped() {
            match self.input.fill(&mut scratch)? {
                0 => break,
                n => rest += n as u64,
            }
        }
        Ok(())
    }

    /// Reads until `want` bytes, or all remaining bytes, are in the buffer. The buffer grows with
    /// the bytes that arrive, never with the length that a field claims.
    fn fill(&mut self, want: usize) -> Result<usize, Error> {
        while self.end - self.pos < want {
            if self.pos > 0 {
                self.buf.copy_within(self.pos..self.end, 0);
                self.base += self.pos as u64;
                self.end -= self.pos;
                self.pos = 0;
            }
            if self.end == self.buf.len() {
                // The buffer grows to at most `want` bytes, or by one chunk, so that a long text
                // does not take up to twice its size.
                let size = self.buf.len() * 2;
                let size = size.min(want).max(self.buf.len() + CHUNK_SIZE);
                if size as u64 > self.room / 2 {
                    return Err(Error::TooMuchMemory {
                        limit: self.max_memory,
                    });
                }
                self.buf.reserve_exact(size - self.buf.len());
                self.buf.resize(size, 0);
            }
            let n = self.input.fill(&mut self.buf[self.end..])?;
            if n == 0 {
                break;
            }
            let missing = HEAD_SIZE.saturating_sub(self.head.len()).min(n);
            self.head
                .extend_from_slice(&self.buf[self.end..self.end + missing]);
            self.end += n;
            if self.base + self.end as u64 > self.limit {
                return Err(Error::TooLarge { limit: self.limit });
            }
        }
        Ok(self.end - self.pos)
    }

    fn error(&self, defect: WireDefect) -> Error {
        Error::Wire {
            offset: self.offset(),
            object: ProfileElement::Profile,
            defect,
            hint: "",
        }
    }

    /// Returns the next field and the offset of its value in the profile; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, WireValue<'_>, u64)>, Error> {
        // A tag and a length, or a tag and a number, take at most 20 bytes.
        let have = self.fill(20)?;
        if have == 0 {
            return Ok(None);
        }
        let data = &self.buf[self.pos..self.end];
        let mut at = 0;
        let tag = varint(data, &mut at).and_then(split_tag);
        let (field, wire_type) = tag.map_err(|defect| self.error(defect))?;
        let cut = |_| WireDefect::Truncated { field };
        match wire_type {
            0 => {
                let number = varint(data, &mut at).map_err(|defect| match defect {
                    WireDefect::Varint => self.error(defect),
                    other => self.error(cut(other)),
                })?;
                self.pos += at;
                Ok(Some((field, WireValue::Varint(number), self.offset())))
            }
            1 | 5 => {
                let size = if wire_type == 1 { 8 } else { 4 };
                if have - at < size {
                    return Err(self.error(WireDefect::Truncated { field }));
                }
                let value = fixed(&data[at..at + size]);
                self.pos += at + size;
                Ok(Some((field, value, self.offset())))
            }
            2 => {
                let length = varint(data, &mut at).map_err(|d| self.error(cut(d)))?;
                let whole = (at as u64).saturating_add(length);
                let want = usize::try_from(whole).unwrap_or(usize::MAX);
                let have = self.fill(want)?;
                if have < want {
                    let left = (have - at) as u64;
                    return Err(self.error(WireDefect::Length {
                        field,
                        length,
                        left,
                    }));
                }
                let start = self.pos + at;
                self.pos += want;
                let bytes = &self.buf[start..self.pos];
                Ok(Some((
                    field,
                    WireValue::Bytes(bytes),
                    self.base + start as u64,
                )))
            }
            _ => Err(self.error(WireDefect::WireType { field, wire_type })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a varint has the same value whether it is read as a word or byte by byte,
    /// whatever follows it.
    #[test]
    fn varints_in_words() {
        let edges = (0..64).flat_map(|bits| [1u64 << bits, (1 << bits) - 1, u64::MAX >> bits]);
        for number in edges.chain((0..64).map(|bits| 0x5555_5555_5555_5555 >> bits)) {
            for rest in [0, 0x7f, 0x80, 0xff] {
                let mut bytes = Vec::new();
                prost::encoding::encode_varint(number, &mut bytes);
                let length = bytes.len();
                assert_eq!(varint_in_word(&bytes[..length.min(7)]), None);
                bytes.resize(12, rest);
                let expected = (length <= 8).then_some((number, length));
                assert_eq!(varint_in_word(&bytes), expected, "{number:#x} {rest:#x}");
            }
        }
    }

    #[test]
    fn varints() {
        let ten = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        let cases: [(&[u8], Result<u64, WireDefect>); 6] = [
            (&[0], Ok(0)),
            (&[0xac, 0x02], Ok(300)),
            (&ten, Ok(u64::MAX)),
            (&[0x80], Err(WireDefect::Truncated { field: 0 })),
            (&[], Err(WireDefect::Truncated { field: 0 })),
            (&[0x80; 11], Err(WireDefect::Varint)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(varint(bytes, &mut 0), expected, "{bytes:?}");
        }
    }
}
