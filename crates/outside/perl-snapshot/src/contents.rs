//! Reads the contents of values: the text or number of a scalar, an element of a hash, the length
//! of an array.

use heapprof_heap::ProcessImage;
use heapprof_perl_values::ElementLookup;

use crate::PerlAddress;
use crate::reader::{PerlMemoryReader, text_of};
use crate::sv::{self, ValueHead};

/// Offset of the integer in a scalar's body.
const SCALAR_INTEGER_OFFSET: u64 = 0x20;
/// Offset of the float in a scalar's body.
const SCALAR_FLOAT_OFFSET: u64 = 0x28;
/// Offset, in a hash's body, of the index of the hash's last bucket.
const HASH_MAX_OFFSET: u64 = 0x18;
/// Offset, in an array's body, of the index of the array's last element.
const ARRAY_FILL_OFFSET: u64 = 0x10;
/// Maximum number of entries of a hash that are searched.
const MAX_ENTRIES: usize = 1 << 28;

/// Returns the text or the number of a value; `None` if it has neither. A text is cut to `limit`
/// bytes.
#[must_use]
pub fn contents(image: &ProcessImage, at: u64, limit: u32) -> Option<String> {
    let reader = PerlMemoryReader::new(image);
    let head = ValueHead::read(&reader, at);
    text(&reader, &head, limit).or_else(|| number(&reader, &head))
}

fn text(reader: &PerlMemoryReader<'_>, head: &ValueHead, limit: u32) -> Option<String> {
    let has_text = head.has_text() && head.has_flags(sv::IS_TEXT);
    if !has_text && (head.kind() != sv::REGEXP || head.own == 0) {
        return None;
    }
    let length = reader.word(head.any.wrapping_add(sv::TEXT_LEN_OFFSET));
    let bytes = reader.bytes(head.own, length.min(limit.into()));
    if bytes.is_empty() && length != 0 {
        // The text is a constant of C code, which the copy does not have.
        return None;
    }
    let more = match length > bytes.len() as u64 {
        true => format!("… ({length} bytes)"),
        false => String::new(),
    };
    Some(text_of(bytes, head.has_flags(sv::IS_UTF8)) + &more)
}

fn number(reader: &PerlMemoryReader<'_>, head: &ValueHead) -> Option<String> {
    let is_scalar = head.kind() <= sv::MAGICAL && !head.has_flags(sv::IS_REFERENCE);
    let body = |at: u64| reader.word(head.any.wrapping_add(at));
    match head.kind() {
        _ if !is_scalar => None,
        sv::INTEGER if head.has_flags(sv::IS_INTEGER) => Some(integer(head, head.own)),
        sv::NUMBER if head.has_flags(sv::IS_FLOAT) => Some(f64::from_bits(head.own).to_string()),
        sv::TEXT.. if head.has_flags(sv::IS_INTEGER) => {
            Some(integer(head, body(SCALAR_INTEGER_OFFSET)))
        }
        sv::TEXT.. if head.has_flags(sv::IS_FLOAT) => {
            Some(f64::from_bits(body(SCALAR_FLOAT_OFFSET)).to_string())
        }
        _ => None,
    }
}

fn integer(head: &ValueHead, word: u64) -> String {
    match head.has_flags(sv::IS_UNSIGNED) {
        true => word.to_string(),
        false => word.cast_signed().to_string(),
    }
}

/// Looks up elements of hashes and arrays in a copy of a program's memory.
#[derive(Clone, Copy, Debug)]
pub struct ImageElements<'a>(pub &'a ProcessImage);

impl ElementLookup for ImageElements<'_> {
    fn find_key(&self, hash: PerlAddress, key: &str) -> Option<PerlAddress> {
        let reader = PerlMemoryReader::new(self.0);
        let head = ValueHead::read(&reader, hash);
        if head.kind() != sv::HASH || head.own == 0 {
            return None;
        }
        let buckets = reader
            .word(head.any.wrapping_add(HASH_MAX_OFFSET))
            .wrapping_add(1);
        let mut left = MAX_ENTRIES;
        for bucket in reader.words(head.own, buckets.min(MAX_ENTRIES as u64)) {
            let mut entry = bucket;
            while entry != 0 && left != 0 {
                left -= 1;
                let mut words = reader.words(entry, 3);
                let [next, found, value] = [(); 3].map(|()| words.next().unwrap_or(0));
                if reader.is_key(found, key) {
                    return Some(value);
                }
                entry = next;
            }
        }
        None
    }

    fn array_length(&self, array: PerlAddress) -> Option<u64> {
        let reader = PerlMemoryReader::new(self.0);
        let head = ValueHead::read(&reader, array);
        let last = reader.word(head.any.wrapping_add(ARRAY_FILL_OFFSET));
        (head.kind() == sv::ARRAY).then(|| last.wrapping_add(1))
    }
}
