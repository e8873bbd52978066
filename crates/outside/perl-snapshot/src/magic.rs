//! Reads magic: data that Perl or a module has attached to a value.

use heapprof_perl_values::ValueStep;

use crate::fill::ValueFiller;
use crate::sv::{self, ValueHead};

// A piece of magic (`struct magic`): its size in bytes, and the offsets of the next piece, the
// letter, the flags, the length of the text, a value, and a pointer to the text or to something
// else.
const MAGIC_SIZE: u64 = 48;
const MAGIC_NEXT_OFFSET: u64 = 0;
const MAGIC_LETTER_OFFSET: u64 = 0x12;
const MAGIC_FLAGS_OFFSET: u64 = 0x13;
const MAGIC_LENGTH_OFFSET: u64 = 0x18;
const MAGIC_VALUE_OFFSET: u64 = 0x20;
const MAGIC_POINTER_OFFSET: u64 = 0x28;
/// Flag of a piece of magic whose reference to a value is counted.
const COUNTED_FLAG: u8 = 2;
/// Value of the length field that marks the pointer field as a pointer to a value.
const VALUE_LENGTH_MARK: i64 = -2;
/// The letter of the magic with the list of weak references to a value.
const BACKWARD_LETTER: u8 = b'<';
/// Maximum number of pieces of magic on a value. No value has more.
const MAX_MAGIC_PIECES: usize = 1000;

impl ValueFiller<'_> {
    pub(crate) fn magic(&mut self, head: &ValueHead) {
        let mut at = self.body(head, sv::MAGIC_OFFSET);
        for _ in 0..MAX_MAGIC_PIECES {
            if at == 0 || self.claims.has_heap() && self.claims.find(at).is_none() {
                return;
            }
            self.claim(at, MAGIC_SIZE);
            let word = |offset: u64| self.reader.word(at.wrapping_add(offset));
            let byte = |offset: u64| self.reader.byte(at.wrapping_add(offset));
            let (letter, flags) = (byte(MAGIC_LETTER_OFFSET), byte(MAGIC_FLAGS_OFFSET));
            let (length, value, pointer) = (
                word(MAGIC_LENGTH_OFFSET) as i64,
                word(MAGIC_VALUE_OFFSET),
                word(MAGIC_POINTER_OFFSET),
            );
            let next = word(MAGIC_NEXT_OFFSET);
            let step = ValueStep::Magic(letter);
            // No other value keeps a list of back references. A single back reference is no list.
            let list = ValueHead::read(&self.reader, value);
            let is_list = letter == BACKWARD_LETTER
                && list.kind() == sv::ARRAY
                && !list.has_flags(sv::IS_COUNTING);
            if value != head.at {
                self.lead_to(value, step, flags & COUNTED_FLAG != 0 || is_list);
            }
            match length {
                VALUE_LENGTH_MARK => self.lead_to(pointer, step, true),
                1.. if pointer != 0 => {
                    let length = length.unsigned_abs();
                    self.claim(pointer, length + 1);
                    // The text may be a structure that was copied.
                    self.mention_words(pointer, length / 8);
                }
                // A variable that is shared between threads has its value in another interpreter.
                _ => {
                    self.lead_to(pointer, ValueStep::Mention, true);
                    self.mention(pointer);
                }
            }
            at = next;
        }
    }
}
