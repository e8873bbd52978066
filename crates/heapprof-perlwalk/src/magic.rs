//! Magic: what Perl or a module has attached to a value.

use heapprof_perl_heap::Step;

use crate::fill::Fill;
use crate::sv::{self, Sv};

// A piece of magic (`struct magic`): how many bytes it has, the next one, its letter, its flags,
// how long its text is, a value, and a text or something else.
const SIZE: u64 = 48;
const NEXT: u64 = 0;
const LETTER: u64 = 0x12;
const FLAGS: u64 = 0x13;
const LENGTH: u64 = 0x18;
const VALUE: u64 = 0x20;
const POINTER: u64 = 0x28;
/// The value is counted.
const IS_COUNTED: u8 = 2;
/// This length says that the text is a value.
const IS_VALUE: i64 = -2;
/// The letter of the list of weak references to the value.
const BACKWARD: u8 = b'<';
/// No value has more of them.
const MOST: usize = 1000;

impl Fill<'_> {
    pub(crate) fn magic(&mut self, head: &Sv) {
        let mut at = self.body(head, sv::MAGIC);
        for _ in 0..MOST {
            if at == 0 || self.claims.has_heap() && self.claims.find(at).is_none() {
                return;
            }
            self.claim(at, SIZE);
            let word = |offset: u64| self.reader.word(at.wrapping_add(offset));
            let byte = |offset: u64| self.reader.byte(at.wrapping_add(offset));
            let (letter, flags) = (byte(LETTER), byte(FLAGS));
            let (length, value, pointer) = (word(LENGTH) as i64, word(VALUE), word(POINTER));
            let next = word(NEXT);
            let step = Step::Magic(letter);
            // A list of who refers back is kept by nothing else. A single one is no list.
            let list = Sv::read(&self.reader, value);
            let is_list =
                letter == BACKWARD && list.kind() == sv::ARRAY && !list.has(sv::IS_COUNTING);
            if value != head.at {
                self.lead_to(value, step, flags & IS_COUNTED != 0 || is_list);
            }
            match length {
                IS_VALUE => self.lead_to(pointer, step, true),
                1.. if pointer != 0 => {
                    let length = length.unsigned_abs();
                    self.claim(pointer, length + 1);
                    // It may be a structure that was copied.
                    self.mention_words(pointer, length / 8);
                }
                // A variable that threads share has its value in another interpreter.
                _ => {
                    self.lead_to(pointer, Step::Mention, true);
                    self.mention(pointer);
                }
            }
            at = next;
        }
    }
}
