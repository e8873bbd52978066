//! Encodes numbers, and fields with one number each, in protobuf's format.
//!
//! Format: protobuf.dev, "Encoding". A number has seven bits in each byte, the lowest first.

/// Adds a number in protobuf's format.
#[inline]
pub(crate) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Maximum number of bytes that a number takes.
pub(crate) const MAX_VARINT_BYTES: usize = 10;

/// Returns a number in protobuf's format, and the number of bytes that it takes.
pub(crate) fn varint_bytes(mut number: u64) -> ([u8; MAX_VARINT_BYTES], usize) {
    let (mut bytes, mut length) = ([0; MAX_VARINT_BYTES], 1);
    while number >= 0x80 {
        bytes[length - 1] = number as u8 | 0x80;
        number >>= 7;
        length += 1;
    }
    bytes[length - 1] = number as u8;
    (bytes, length)
}

/// Returns how many bytes a number takes in protobuf's format.
pub(crate) fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// Returns the number of bytes that `fields` take in protobuf's format. Each field has one number.
/// Fields with the number 0 are not written.
pub(crate) fn fields_len(fields: &[(u8, u64)]) -> usize {
    let there = fields.iter().filter(|(_, number)| *number != 0);
    there.map(|&(_, number)| 1 + varint_len(number)).sum()
}

/// Appends `fields`, each of which has one number. Fields with the number 0 are not written.
pub(crate) fn fields(out: &mut Vec<u8>, fields: &[(u8, u64)]) {
    for &(field, number) in fields.iter().filter(|(_, number)| *number != 0) {
        out.push(field << 3);
        varint(out, number);
    }
}

/// Adds a message whose fields have one number each. The message is written even if all numbers are
/// 0.
pub(crate) fn message(out: &mut Vec<u8>, field: u8, numbers: &[(u8, u64)]) {
    out.push(field << 3 | 2);
    varint(out, fields_len(numbers) as u64);
    fields(out, numbers);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_as_prost_writes_them() {
        let edges = (0..64).flat_map(|bits| [1u64 << bits, (1 << bits) - 1, u64::MAX >> bits]);
        for number in edges.chain((0..64).map(|bits| 0x5555_5555_5555_5555 >> bits)) {
            let (mut ours, mut theirs) = (vec![7], vec![7]);
            varint(&mut ours, number);
            prost::encoding::encode_varint(number, &mut theirs);
            assert_eq!(ours, theirs, "{number:#x}");
            assert_eq!(ours.len(), 1 + varint_len(number), "{number:#x}");
            let (bytes, length) = varint_bytes(number);
            assert_eq!(bytes[..length], ours[1..], "{number:#x}");
        }
    }
}
