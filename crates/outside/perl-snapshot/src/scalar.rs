//! Reads scalars (numbers, texts and references), lvalues (values that stand for a part of another
//! value) and regular expressions.

use heapprof_perl_values::{PerlValueKind, ValueStep};

use crate::fill::ValueFiller;
use crate::sv::{self, ValueHead};

/// Offset of the number in the body of a scalar.
const SCALAR_NUMBER_OFFSET: u64 = 0x20;
/// Offset of the value that an lvalue stands for.
const LVALUE_TARGET_OFFSET: u64 = 0x40;
/// Offset of an lvalue's letter.
const LVALUE_LETTER_OFFSET: u64 = 0x48;
/// Offset, in a regular expression, of the original from which it was copied.
const REGEXP_ORIGINAL_OFFSET: u64 = 0x28;
/// Offset, in a regular expression, of the names of its groups.
const REGEXP_GROUPS_OFFSET: u64 = 0x30;
/// Maximum length in bytes of a buffer that counts as a C structure although no byte of it is used.
/// (The buffer of an object may be longer.)
const MAX_STRUCTURE_LENGTH: u64 = 4096;
/// Minimum number of letters after a cleared first byte. With fewer letters, a buffer is not
/// recognized as an emptied text.
const MIN_TEXT_REST: usize = 3;
/// Offset of a key's text.
const KEY_TEXT_OFFSET: u64 = 8;
/// Distance from a text to the word with the number of bytes that were cut off at its beginning.
/// The number is in the byte before the text, or in this word if that byte is zero.
const CUT_WORD_DISTANCE: u64 = 9;

impl ValueFiller<'_> {
    pub(crate) fn scalar(&mut self, head: &ValueHead) -> PerlValueKind {
        if head.has_flags(sv::IS_REFERENCE) {
            let is_strong = !head.has_flags(sv::IS_WEAK);
            self.lead_to(head.own, ValueStep::Referent, is_strong);
            return PerlValueKind::Reference;
        }
        self.text(head);
        if head.has_flags(sv::IS_INTEGER) {
            // Modules keep the addresses of their structures as numbers.
            let number = match head.kind() {
                sv::INTEGER => head.own,
                sv::TEXT..=sv::MAGICAL => self.body(head, SCALAR_NUMBER_OFFSET),
                _ => 0,
            };
            self.link_whole(number);
        }
        match head.kind() {
            sv::INVLIST => PerlValueKind::Invlist,
            sv::LVALUE => PerlValueKind::Lvalue,
            _ if head.is_undefined() => PerlValueKind::Undefined,
            _ => PerlValueKind::Scalar,
        }
    }

    /// Follows a number if it is the address of a chunk or of a value.
    fn link_whole(&mut self, number: u64) {
        let chunk = self.claims.find(number);
        let Some(chunk) = chunk.and_then(|one| self.claims.chunk(one)) else {
            return;
        };
        match chunk.at == number {
            true => self.mention(number),
            false => self.lead_to(number, ValueStep::Mention, true),
        }
    }

    /// Claims the buffer of a value's text, and follows the pointers in it.
    pub(crate) fn text(&mut self, head: &ValueHead) {
        if !head.has_text() {
            return;
        }
        let length = self.body(head, sv::TEXT_CAPACITY_OFFSET);
        match length {
            // The text is the text of a key, or a constant of C code, which no value owns.
            0 if head.has_flags(sv::IS_SHARED) => {
                self.claim_key(head.own.wrapping_sub(KEY_TEXT_OFFSET))
            }
            0 => {}
            length => {
                let cut = match head.has_flags(sv::HAS_MORE) {
                    true => self.cut_length(head),
                    false => 0,
                };
                let start = head.own.wrapping_sub(cut);
                self.claim_text(
                    start,
                    length.saturating_add(cut),
                    head.has_flags(sv::IS_SHARED),
                );
                // No module cuts off the beginning of a structure.
                if cut == 0 && head.kind() != sv::INVLIST {
                    let bytes = self.structure_bytes(head, length);
                    self.mention_words(start, bytes / 8);
                }
            }
        }
    }

    /// Returns how many bytes of a text's buffer may be a C structure of a module. These are the
    /// used bytes. (A real text among them does no harm: it has no zeros, so it does not look like
    /// pointers.) If no byte is used, the module may not have set the length. Then the whole buffer
    /// may be a structure.
    fn structure_bytes(&self, head: &ValueHead, length: u64) -> u64 {
        let used = self.body(head, sv::TEXT_LEN_OFFSET);
        let is_object = self.value.class != 0;
        match used {
            // Perl has copied the buffer as a text. It may be long, and many values may share it.
            _ if head.has_flags(sv::IS_SHARED) => 0,
            0 if length > MAX_STRUCTURE_LENGTH && !is_object => 0,
            0 => {
                let bytes = self.reader.bytes(head.own, length);
                match is_emptied_text(bytes, |word| self.claims.find(word).is_some()) {
                    true => 0,
                    false => length,
                }
            }
            used => used.min(length),
        }
    }

    /// Returns how many bytes were cut off at the beginning of a text.
    fn cut_length(&self, head: &ValueHead) -> u64 {
        match self.reader.byte(head.own.wrapping_sub(1)) {
            0 => self.reader.word(head.own.wrapping_sub(CUT_WORD_DISTANCE)),
            cut => cut.into(),
        }
    }

    pub(crate) fn lvalue(&mut self, head: &ValueHead) -> PerlValueKind {
        let target = self.body(head, LVALUE_TARGET_OFFSET);
        match self
            .reader
            .byte(head.any.wrapping_add(LVALUE_LETTER_OFFSET))
        {
            // An entry of a tied hash, which is no value.
            b'T' => self.extra_entry(target),
            b't' => self.lead_to(target, ValueStep::Target, false),
            _ => self.lead_to(target, ValueStep::Target, true),
        }
        // The value may be a regular expression at the same time.
        let length = self.body(head, sv::TEXT_CAPACITY_OFFSET);
        self.link(length);
        self.scalar(head)
    }

    pub(crate) fn regexp(&mut self, head: &ValueHead) -> PerlValueKind {
        let layout = self.layout;
        let (matched, code) = (layout.saved_copy, layout.code);
        for (at, step) in [
            (REGEXP_ORIGINAL_OFFSET, self.steps.pattern),
            (REGEXP_GROUPS_OFFSET, self.steps.groups),
            (matched, self.steps.matched),
            (code, self.steps.symbol),
        ] {
            let to = self.body(head, at);
            self.lead_to(to, step, true);
        }
        self.link(head.own);
        let size = self.perl.body_size(sv::REGEXP, 0);
        self.link_words(head.any, size / 8);
        PerlValueKind::Regexp
    }
}

/// Whether a buffer contained a text that was emptied. Emptying clears only the first byte.
/// `is_pointer` returns whether a word is an address in the heap: such a word, too, may have a zero
/// as its lowest byte and letters as its other bytes.
fn is_emptied_text(bytes: &[u8], is_pointer: impl Fn(u64) -> bool) -> bool {
    let [0, rest @ ..] = bytes else {
        return false;
    };
    let first = bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
    if first.is_some_and(is_pointer) {
        return false;
    }
    let text = rest
        .iter()
        .take_while(|&&byte| byte.is_ascii_graphic() || byte == b' ');
    text.count() >= MIN_TEXT_REST
}

#[cfg(test)]
mod tests {
    use super::is_emptied_text;

    #[test]
    fn an_emptied_text_is_no_structure() {
        let is_emptied = |bytes: &[u8]| is_emptied_text(bytes, |word| word == 0x5585_4833_2800);
        assert!(is_emptied(b"\0ello world\0\x10\x20"));
        assert!(is_emptied(b"\0ello"));
        // A structure begins with flags, numbers and pointers.
        assert!(!is_emptied(b"\0\0\0\0\x00\x02\0\0\x10\x20"));
        assert!(!is_emptied(b"\x01abcdefg"));
        assert!(!is_emptied(b"\0ab\0\0\0\0\0"));
        assert!(!is_emptied(b""));
        // A pointer may look like the rest of a text: this one is "(3HU".
        assert!(is_emptied(b"\0)3HU\x85\0\0"));
        assert!(!is_emptied(b"\0(3H\x85\x55\0\0"));
    }
}
