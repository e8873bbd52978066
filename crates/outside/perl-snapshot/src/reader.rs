//! Reads a copy of a program's memory by address. Missing bytes read as zeros.

use std::cell::Cell;

use heapprof_heap::{ImageRegion, ProcessImage};

use crate::PerlAddress;

/// Maximum length of a key or name in bytes. A longer one is cut.
const MAX_TEXT_LENGTH: u64 = 1000;
/// Offset of the length in a key.
const KEY_LENGTH_OFFSET: u64 = 4;
/// Offset of the text in a key.
const KEY_TEXT_OFFSET: u64 = 8;
/// Flag in the byte after a key's text: the text is UTF-8.
const UTF8_FLAG: u8 = 1;

/// A reader of a copy of a program's memory.
#[derive(Clone, Debug)]
pub(crate) struct PerlMemoryReader<'a> {
    image: &'a ProcessImage,
    /// The piece of memory that contained the word read last.
    last: Cell<Option<&'a ImageRegion>>,
}

impl<'a> PerlMemoryReader<'a> {
    pub(crate) fn new(image: &'a ProcessImage) -> Self {
        Self {
            image,
            last: Cell::new(None),
        }
    }

    /// Returns the copy of the program's memory.
    pub(crate) fn image(&self) -> &'a ProcessImage {
        self.image
    }

    fn region(&self, at: PerlAddress) -> Option<&'a ImageRegion> {
        let last = self.last.get();
        if last.is_some_and(|region| region.range().contains(&at)) {
            return last;
        }
        let found = self.image.region(at)?;
        self.last.set(Some(found));
        Some(found)
    }

    /// Returns the bytes at an address, up to the end of the piece that contains them.
    pub(crate) fn bytes(&self, at: PerlAddress, len: u64) -> &'a [u8] {
        let Some(region) = self.region(at) else {
            return &[];
        };
        let rest = &region.bytes[(at - region.start) as usize..];
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        &rest[..len.min(rest.len())]
    }

    fn array<const N: usize>(&self, at: PerlAddress) -> [u8; N] {
        let bytes = self.bytes(at, N as u64);
        bytes.first_chunk().copied().unwrap_or([0; N])
    }

    /// Returns the word at an address.
    pub(crate) fn word(&self, at: PerlAddress) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    /// Returns the half word (4 bytes) at an address.
    pub(crate) fn half(&self, at: PerlAddress) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(crate) fn byte(&self, at: PerlAddress) -> u8 {
        self.array::<1>(at)[0]
    }

    /// Reads `count` words. Missing pages in the middle, which were never touched, read as zeros.
    pub(crate) fn words(&self, at: PerlAddress, count: u64) -> impl Iterator<Item = u64> + use<'a> {
        let reader = self.clone();
        (0..count).map(move |i| reader.word(at.wrapping_add(8 * i)))
    }

    /// Returns the length of a key in bytes; `None` if the key is not a text but a value.
    pub(crate) fn key_length(&self, key: PerlAddress) -> Option<u64> {
        let length = self.half(key.wrapping_add(KEY_LENGTH_OFFSET)) as i32;
        u64::try_from(length).ok()
    }

    /// Returns the text of a key (`HEK`).
    pub(crate) fn key(&self, key: PerlAddress) -> String {
        let length = self.key_length(key).unwrap_or(0);
        let at = key.wrapping_add(KEY_TEXT_OFFSET);
        let flags = self.byte(at.wrapping_add(length).wrapping_add(1));
        let text = text_of(
            self.bytes(at, length.min(MAX_TEXT_LENGTH)),
            flags & UTF8_FLAG != 0,
        );
        match length > MAX_TEXT_LENGTH {
            true => text + "…",
            false => text,
        }
    }

    /// Whether a key has this text.
    pub(crate) fn is_key(&self, key: PerlAddress, text: &str) -> bool {
        let length = self.key_length(key).unwrap_or(u64::MAX);
        let at = key.wrapping_add(KEY_TEXT_OFFSET);
        // A character takes one byte in the key, or as many as UTF-8 needs.
        if length > text.len() as u64 {
            return false;
        }
        let flags = self.byte(at.wrapping_add(length).wrapping_add(1));
        text_of(self.bytes(at, length), flags & UTF8_FLAG != 0) == text
    }

    /// Reads a text that ends at a zero byte, or after `len` bytes.
    pub(crate) fn text(&self, at: PerlAddress, len: u64) -> String {
        let bytes = self.bytes(at, len.min(MAX_TEXT_LENGTH));
        let end = bytes.iter().position(|&byte| byte == 0);
        text_of(&bytes[..end.unwrap_or(bytes.len())], true)
    }
}

/// Decodes a text of Perl, which is UTF-8 or has one byte for each character.
pub(crate) fn text_of(bytes: &[u8], is_utf8: bool) -> String {
    match is_utf8 {
        true => String::from_utf8_lossy(bytes).into_owned(),
        false => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}
