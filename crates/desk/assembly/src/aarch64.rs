//! Instructions of 64-bit ARM, by the crate yaxpeax-arm.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Operand};

use crate::reference::{CodeReference, TargetNames};

/// Number of bytes of each instruction.
const INSTRUCTION_BYTES: u8 = 4;

/// A decoded instruction.
pub(crate) struct DecodedWord {
    address: u64,
    /// The text. If the instruction refers to a place, the text ends before the place.
    text: String,
    /// The place to which the instruction refers by its distance.
    pub(crate) reference: Option<CodeReference>,
    /// The page to which `adrp` refers. Other instructions add the distance in the page.
    page: Option<u64>,
}

impl DecodedWord {
    /// Returns the virtual address behind the instruction.
    pub(crate) fn end(&self) -> u64 {
        self.address.wrapping_add(INSTRUCTION_BYTES.into())
    }
}

/// Decodes code that begins at `start`, up to `most` instructions. A word that is no known
/// instruction shows as `.inst`.
pub(crate) fn decode(code: &[u8], start: u64, most: usize) -> Vec<DecodedWord> {
    let words = code.as_chunks::<{ INSTRUCTION_BYTES as usize }>().0.iter();
    let words = words.take(most).zip(0..);
    words
        .map(|(bytes, at): (_, u64)| {
            let address = start.wrapping_add(at * u64::from(INSTRUCTION_BYTES));
            decode_word(*bytes, address)
        })
        .collect()
}

fn decode_word(bytes: [u8; INSTRUCTION_BYTES as usize], address: u64) -> DecodedWord {
    let word = u32::from_le_bytes(bytes);
    let mut decoded = DecodedWord {
        address,
        text: format!(".inst 0x{word:08x}"),
        reference: None,
        page: None,
    };
    let Ok(instruction) = InstDecoder::default().decode(&mut U8Reader::new(&bytes)) else {
        return decoded;
    };
    decoded.text = instruction.to_string();
    let distance = instruction
        .operands
        .iter()
        .find_map(|operand| match operand {
            Operand::PCOffset(distance) => Some(*distance),
            _ => None,
        });
    // The place is the last operand, and shows as `$+0x10`.
    if let (Some(distance), Some(end)) = (distance, decoded.text.rfind('$')) {
        decoded.text.truncate(end);
        let is_branch = !decoded.text.starts_with("adr") && !decoded.text.starts_with("ldr");
        match is_page_address(word) {
            true => decoded.page = Some((address & !0xfff).wrapping_add_signed(distance)),
            false => {
                let place = address.wrapping_add_signed(distance);
                decoded.reference = Some(match is_branch && !decoded.text.starts_with("prfm") {
                    true => CodeReference::Branch(place),
                    false => CodeReference::Memory(place),
                });
            }
        }
    }
    decoded
}

/// Whether a word is the instruction `adrp`.
fn is_page_address(word: u32) -> bool {
    word & 0x9f00_0000 == 0x9000_0000
}

/// Returns the place from which the code of a linkage stub (`name@plt`) reads where it jumps to.
/// The stub has `adrp x16` and `ldr x17, [x16, …]`, maybe behind a landing mark.
pub(crate) fn stub_slot(code: &[u8], start: u64) -> Option<u64> {
    let words = code.as_chunks::<{ INSTRUCTION_BYTES as usize }>().0;
    let first = decode(code, start, 2);
    let mut pairs = words.windows(2).zip(&first);
    pairs.find_map(|(pair, decoded)| {
        let [page, load] = [pair.first()?, pair.get(1)?].map(|bytes| u32::from_le_bytes(*bytes));
        let is_stub = page & 0x9f00_001f == 0x9000_0010 && load & 0xffc0_03ff == 0xf940_0211;
        let distance = u64::from(load >> 10 & 0xfff) * 8;
        let page = decoded.page.filter(|_| is_stub)?;
        Some(page.wrapping_add(distance))
    })
}

/// Calls `each` with the address, the length and the text of each instruction.
pub(crate) fn format(
    all: &[DecodedWord],
    names: &TargetNames,
    mut each: impl FnMut(u64, u8, String),
) {
    for word in all {
        let mut text = word.text.clone();
        let place = word.reference.map(CodeReference::address).or(word.page);
        let name = word.reference.and_then(|place| names.get(place.address()));
        match (name, place) {
            (Some(name), _) => text += name,
            (None, Some(place)) => text += &format!("{place:#x}"),
            (None, None) => {}
        }
        each(word.address, INSTRUCTION_BYTES, text);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::reference::named;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn instructions_name_what_they_refer_to() {
        let words = [
            0xa9bf7bfd, // a store of two registers
            0xaa1303e0, // a move, which is an or
            0x94000002, // a call
            0x54000082, // a conditional jump
            0xf0000010, // the address of a page, three pages on
            0x10000040, // the address of a place
            0x25b8c000, // SVE, which is not known
            0xd65f03c0, // a return
        ];
        let names = [(0x1010, "allocate"), (0x101c, "table")];
        let mut text = String::new();
        let all = decode(&code(&words), 0x1000, 100);
        format(
            &all,
            &TargetNames::new(named(&names)),
            |address, length, one| {
                text += &format!("{address:x} {length} {one}\n");
            },
        );
        expect![[r#"
            1000 4 stp x29, x30, [sp, #-0x10]!
            1004 4 mov x0, x19
            1008 4 bl allocate
            100c 4 b.hs table
            1010 4 adrp x16, 0x4000
            1014 4 adr x0, table
            1018 4 .inst 0x25b8c000
            101c 4 ret
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn a_stub_jumps_to_what_its_slot_holds() {
        let stub = code(&[0xf0000010, 0xf9400211 | 3 << 10, 0x91006210, 0xd61f0220]);
        assert_eq!(stub_slot(&stub, 0x1030), Some(0x4018));
        let marked = [code(&[0xd503245f]), stub].concat();
        assert_eq!(stub_slot(&marked, 0x1030), Some(0x4018));
        // The page before.
        let back = code(&[0xf0fffff0, 0xf9400211 | 3 << 10]);
        assert_eq!(stub_slot(&back, 0x1030), Some(0x18));
        assert_eq!(stub_slot(&code(&[0xd65f03c0, 0xd65f03c0]), 0x1030), None);
    }

    /// Words of a sequence without a pattern are shown somehow.
    #[test]
    fn no_word_panics() {
        let mut word = 1_u32;
        let words: Vec<u32> = (0..200_000)
            .map(|_| {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                word.rotate_left(13)
            })
            .collect();
        assert_eq!(decode(&code(&words), 0, usize::MAX).len(), words.len());
        assert_eq!(decode(&code(&words)[..7], u64::MAX, usize::MAX).len(), 1);
    }
}
