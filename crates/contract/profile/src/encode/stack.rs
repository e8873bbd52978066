//! Encodes stacks. Each location id is encoded once; its bytes are copied into every stack that
//! contains it.

use crate::hashing::HashMap;

use crate::model::LocationIndex;
use crate::varint::{MAX_VARINT_BYTES, varint_bytes};

/// Maximum number of bytes of an encoded id that is stored in a word. The eighth byte of the word
/// holds the number of bytes.
const MAX_SHORT_ID_BYTES: usize = 7;

/// The ids of locations as varints, by the position of the location.
#[derive(Default)]
pub(super) struct EncodedIds {
    /// A word for each location, with the bytes of the location's id, and the number of these bytes
    /// in the uppermost byte. The word is 0 if the id is in `long`.
    short: Vec<u64>,
    long: HashMap<u32, Vec<u8>>,
}

impl EncodedIds {
    pub(super) fn len(&self) -> usize {
        self.short.len()
    }

    pub(super) fn push(&mut self, id: u64) {
        let (bytes, length) = varint_bytes(id);
        if length > MAX_SHORT_ID_BYTES {
            let position = self.short.len() as u32;
            self.long.insert(position, bytes[..length].to_vec());
            self.short.push(0);
            return;
        }
        let mut word = [0; 8];
        word[..length].copy_from_slice(&bytes[..length]);
        word[MAX_SHORT_ID_BYTES] = length as u8;
        self.short.push(u64::from_le_bytes(word));
    }

    /// Returns the number of bytes of a location's encoded id.
    fn length(&self, location: LocationIndex) -> usize {
        match (self.short[location.index()] >> (8 * MAX_SHORT_ID_BYTES)) as usize {
            0 => self.long[&location.0].len(),
            length => length,
        }
    }

    /// Writes the ids of a stack to the beginning of `room` and returns the number of bytes. `room`
    /// grows so that `more` bytes fit after the ids.
    fn put(&self, stack: &[LocationIndex], room: &mut Vec<u8>, more: usize) -> usize {
        // A whole word is copied even if the id is shorter.
        let most = stack.len() * MAX_VARINT_BYTES + size_of::<u64>() + more;
        if room.len() < most {
            room.resize(most, 0);
        }
        let mut at = 0;
        for &location in stack {
            let word = self.short[location.index()];
            // The processor can't predict lengths, so every short id is copied as a whole word.
            room[at..at + size_of::<u64>()].copy_from_slice(&word.to_le_bytes());
            at += match (word >> (8 * MAX_SHORT_ID_BYTES)) as usize {
                0 => self.put_long(location, &mut room[at..]),
                length => length,
            };
        }
        at
    }

    #[cold]
    fn put_long(&self, location: LocationIndex, room: &mut [u8]) -> usize {
        let bytes = &self.long[&location.0];
        room[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }
}

/// Packed location ids of a stack, leaf first. If two stacks share their outermost frames, the last
/// bytes of both are equal.
#[derive(Default)]
pub(super) struct PackedStack {
    /// Packed ids in the first `length` bytes; the rest is unused.
    room: Vec<u8>,
    length: usize,
    frames: usize,
    /// Number of packed bytes of the outermost frame, of the two outermost frames, and so on. Only
    /// `go_on` keeps this list up to date.
    bytes: Vec<usize>,
    next: Vec<u8>,
}

impl PackedStack {
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    pub(super) fn packed(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// Packs another stack, leaf first, in place of the current one.
    pub(super) fn set(&mut self, stack: &[LocationIndex], ids: &EncodedIds) {
        self.length = ids.put(stack, &mut self.room, 0);
        self.frames = stack.len();
    }

    /// Keeps the stack's `shared` outermost frames and replaces the other frames by `newer`, leaf
    /// first.
    pub(super) fn go_on(&mut self, shared: usize, newer: &[LocationIndex], ids: &EncodedIds) {
        self.bytes.truncate(shared);
        let mut end = self.bytes.last().copied().unwrap_or(0);
        let length = ids.put(newer, &mut self.next, end);
        let same = self.length - end..self.length;
        self.next[length..length + end].copy_from_slice(&self.room[same]);
        self.length = length + end;
        for &location in newer.iter().rev() {
            end += ids.length(location);
            self.bytes.push(end);
        }
        self.frames = self.bytes.len();
        std::mem::swap(&mut self.room, &mut self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_packed_whatever_their_ids() {
        let numbers = [
            1,
            127,
            128,
            1 << 48,
            (1 << 49) - 1,
            1 << 49,
            1 << 56,
            u64::MAX,
        ];
        let mut ids = EncodedIds::default();
        numbers.iter().for_each(|&id| ids.push(id));
        let expected = |stack: &[LocationIndex]| {
            let mut packed = Vec::new();
            for location in stack {
                prost::encoding::encode_varint(numbers[location.index()], &mut packed);
            }
            packed
        };
        let stack = |positions: &[u32]| -> Vec<LocationIndex> {
            positions.iter().map(|&at| LocationIndex(at)).collect()
        };
        let (mut set, mut grown) = (PackedStack::default(), PackedStack::default());
        let mut whole = Vec::new();
        for (shared, newer) in [
            (0, &[0, 1, 2, 3, 4, 5, 6, 7][..]),
            (8, &[7, 7, 7]),
            (11, &[]),
            (3, &[1]),
            (0, &[]),
            (0, &[7]),
        ] {
            let newer = stack(newer);
            whole = [&newer, &whole[whole.len() - shared..]].concat();
            grown.go_on(shared, &newer, &ids);
            set.set(&whole, &ids);
            assert_eq!(set.packed(), expected(&whole));
            assert_eq!(grown.packed(), expected(&whole));
            assert_eq!((set.frames(), grown.frames()), (whole.len(), whole.len()));
        }
    }
}
