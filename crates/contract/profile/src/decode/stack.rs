//! Reads a sample's packed location ids, which are most of a profile's bytes. No branch depends on
//! the length of an id.

use crate::model::LocationIndex;

/// Number of bytes that are searched for the ends of numbers in one step.
const BLOCK_SIZE: usize = 64;

/// Masks for the lowest bytes of a word. The index is the number of bytes.
const BYTE_MASKS: [u32; 4] = [0, 0xff, 0xffff, 0xff_ffff];

/// Adds the numbers at the beginning of `packed` to `ids`, but stops before the first number of
/// more than three bytes. Returns the number of bytes read. If `packed` has fewer than four bytes,
/// no number is read.
///
/// First the ends of all numbers of a block are found. Then each number is read from its first to
/// its last byte, without waiting for the number before it.
pub(super) fn read_short(packed: &[u8], ids: &mut Vec<LocationIndex>) -> usize {
    // There are at most as many numbers as bytes, because a number takes at least one byte.
    let mut of_block = [LocationIndex(0); BLOCK_SIZE];
    let mut begin = 0;
    for (block, bytes) in packed.chunks(BLOCK_SIZE).enumerate() {
        let mut ends = match (bytes.try_into(), packed.last_chunk()) {
            (Ok(whole), _) => ends_of(whole),
            // The last block is shorter. Its bytes are the last ones of the last `BLOCK_SIZE` bytes
            // of `packed`.
            (_, Some(whole)) => ends_of(whole) >> (BLOCK_SIZE - bytes.len()),
            _ => {
                // A missing byte must not look like the end of a number.
                let mut whole = [0x80; BLOCK_SIZE];
                whole[..bytes.len()].copy_from_slice(bytes);
                ends_of(&whole)
            }
        };
        let mut read = 0;
        let whole = 'block: {
            while ends != 0 {
                let next = block * BLOCK_SIZE + ends.trailing_zeros() as usize + 1;
                ends &= ends - 1;
                let word = match (packed[begin..].first_chunk(), packed.last_chunk()) {
                    (Some(word), _) => u32::from_le_bytes(*word),
                    // Fewer than four bytes are left. The last four bytes are read, and those
                    // before the number are shifted out.
                    (_, Some(word)) => {
                        u32::from_le_bytes(*word) >> (8 * (4 + begin - packed.len()))
                    }
                    _ => break 'block false,
                };
                let number = match next - begin {
                    length @ 1..=3 => word & BYTE_MASKS[length],
                    _ => break 'block false,
                };
                of_block[read].0 = number & 0x7f | number >> 1 & 0x3f80 | number >> 2 & 0x1f_c000;
                read += 1;
                begin = next;
            }
            true
        };
        ids.extend_from_slice(&of_block[..read]);
        if !whole {
            break;
        }
    }
    begin
}

/// Returns one bit for each byte of a block: whether the byte is the last one of a number.
fn ends_of(block: &[u8; BLOCK_SIZE]) -> u64 {
    let (words, _) = block.as_chunks();
    let mut ends = 0;
    for (at, &word) in words.iter().enumerate() {
        // The top bit of a byte is not set if the byte is the last of a number. The inverted top
        // bits are joined in twos, then in fours, then all eight.
        let last = !u64::from_le_bytes(word) >> 7 & 0x0101_0101_0101_0101;
        let last = last | last >> 7;
        let last = last | last >> 14;
        let last = last | last >> 28;
        ends |= (last & 0xff) << (8 * at);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::varint;

    /// Checks that numbers read together are the same as numbers read one by one, and that reading
    /// ends at the first longer number.
    #[test]
    fn short_numbers_are_numbers() {
        let numbers: Vec<u64> = (0..35)
            .step_by(7)
            .flat_map(|bits| {
                [
                    (1 << bits) - 1,
                    1 << bits,
                    0x1_5555_5555 & ((2 << bits) - 1),
                ]
            })
            .collect();
        let mut seed = 1u64;
        let mut random = |most: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 33) as usize % most
        };
        let mut together = 0;
        // Miri takes thousands of times as long.
        for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
            // Nearly all numbers are short.
            let kinds = if random(8) == 0 { numbers.len() } else { 9 };
            let numbers: Vec<u64> = (0..random(100)).map(|_| numbers[random(kinds)]).collect();
            let mut packed = Vec::new();
            numbers
                .iter()
                .for_each(|&n| prost::encoding::encode_varint(n, &mut packed));
            let mut ids = vec![LocationIndex(7)];
            let length = read_short(&packed, &mut ids);
            let mut pos = 0;
            for &LocationIndex(number) in &ids[1..] {
                let expected = varint(&packed, &mut pos);
                assert_eq!(expected, Ok(u64::from(number)), "{numbers:?}");
            }
            assert_eq!((pos, ids[0].0), (length, 7), "{numbers:?}");
            let (read, short) = (ids.len() - 1, numbers.iter().take_while(|&&n| n < 1 << 21));
            assert!(read == short.count() || packed.len() < 4, "{numbers:?}");
            together += read;
        }
        assert!(cfg!(miri) || together > 200_000, "{together}");
    }
}
