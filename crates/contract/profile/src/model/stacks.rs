//! Stacks of all samples. Each stack is a list of positions of locations. Stacks may also stay
//! encoded, as in the file, until a caller asks for frames.
//!
//! Encoded stacks save time if a profile is only passed on: decoding and encoding ids would be half
//! of the work.

use std::sync::OnceLock;

use super::{Location, LocationIndex};
use crate::parts::range;
use crate::varint::varint;
use crate::wire;

/// All stacks, one after the other, each leaf first.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleStacks {
    /// All frames. They are missing while only `written` holds the stacks.
    location: OnceLock<Vec<LocationIndex>>,
    /// End of each stack in `location`.
    end: Vec<usize>,
    written: Option<EncodedStacks>,
}

/// Stacks as packed ids, each id in as few bytes as possible. In [`SampleStacks`] each id is the
/// location's position plus 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncodedStacks {
    bytes: Vec<u8>,
    /// End of each stack in `bytes`.
    end: Vec<usize>,
    /// The largest id, minus 1.
    largest: u32,
}

impl SampleStacks {
    /// Makes stacks from all frames and the end of each stack among them.
    pub(crate) fn new(location: Vec<LocationIndex>, end: Vec<usize>) -> Self {
        Self {
            location: location.into(),
            end,
            written: None,
        }
    }

    /// Makes stacks that are not decoded until a caller asks for frames. `end` holds the end of
    /// each stack among the frames.
    pub(crate) fn from_encoded(written: EncodedStacks, end: Vec<usize>) -> Self {
        Self {
            location: OnceLock::new(),
            end,
            written: Some(written),
        }
    }

    /// Returns the total number of frames in all stacks.
    pub(crate) fn frames(&self) -> usize {
        self.end.last().copied().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> &[LocationIndex] {
        &self.all()[range(&self.end, i)]
    }

    /// Returns the number of frames of stack `i`.
    pub(crate) fn frames_of(&self, i: usize) -> usize {
        range(&self.end, i).len()
    }

    /// Returns the encoded stacks, if they can be written to a file with these locations. `None` if
    /// the stacks were decoded, or if the ids of the locations are not 1, 2, 3, ...
    pub(crate) fn bytes_for(&self, locations: &[Location]) -> Option<&EncodedStacks> {
        let written = self.written.as_ref()?;
        let mut numbered = locations.iter().zip(1..);
        let same = numbered.all(|(location, number)| location.id == number);
        same.then_some(written)
    }

    #[inline]
    fn all(&self) -> &Vec<LocationIndex> {
        self.location.get_or_init(|| self.read())
    }

    #[cold]
    fn read(&self) -> Vec<LocationIndex> {
        let mut all = self
            .written
            .as_ref()
            .map_or_else(Vec::new, EncodedStacks::ids);
        all.iter_mut().for_each(|id| id.0 -= 1);
        all
    }

    /// Returns all frames and the ends of all stacks, which may be changed.
    pub(crate) fn edit(&mut self) -> (&mut Vec<LocationIndex>, &mut Vec<usize>) {
        self.all();
        self.written = None;
        let all = self.location.get_mut().expect("they were read above");
        (all, &mut self.end)
    }
}

impl PartialEq for SampleStacks {
    fn eq(&self, other: &Self) -> bool {
        self.end == other.end && self.all() == other.all()
    }
}

impl EncodedStacks {
    /// Adds a stack: its ids, and its packed bytes if the file packs them.
    pub(crate) fn push(&mut self, ids: &[LocationIndex], packed: Option<&[u8]>) {
        // The number of bytes that each id needs. No id can be written in fewer bytes. So if the
        // total is the least, every id is as short as possible.
        let above = |id: u32, bits: u32| u32::from(id >> bits != 0);
        let needed = |id| 1 + above(id, 7) + above(id, 14) + above(id, 21) + above(id, 28);
        let least: u32 = ids.iter().map(|id| needed(id.0)).sum();
        match packed {
            Some(packed) if packed.len() == least as usize => {
                self.bytes.extend_from_slice(packed);
            }
            _ => {
                for id in ids {
                    varint(&mut self.bytes, u64::from(id.0));
                }
            }
        }
        self.end.push(self.bytes.len());
        // 0 is not a valid id. 0 minus 1 wraps to the largest number, which is beyond all ids.
        let largest = ids.iter().map(|id| id.0.wrapping_sub(1)).max();
        self.largest = self.largest.max(largest.unwrap_or(0));
    }

    /// Whether all ids are between 1 and `count`.
    pub(crate) fn are_of(&self, count: u32) -> bool {
        self.bytes.is_empty() || self.largest < count
    }

    /// Returns how many bytes of memory the stacks take.
    pub(crate) fn memory(&self) -> u64 {
        (self.bytes.len() + size_of_val(&self.end[..])) as u64
    }

    /// Returns the packed ids of stack `i`.
    pub(crate) fn get(&self, i: usize) -> &[u8] {
        &self.bytes[range(&self.end, i)]
    }

    /// Returns all ids, one stack after the other.
    pub(crate) fn ids(&self) -> Vec<LocationIndex> {
        let (mut ids, mut at) = (Vec::new(), 0);
        while let Ok(id) = wire::varint(&self.bytes, &mut at) {
            ids.push(LocationIndex(id as u32));
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_copy_keeps_its_stacks() {
        let mut builder = crate::ProfileBuilder::new(&[("inuse_space", "bytes")]);
        builder.add_folded("main;parse", &[96]);
        builder.add_folded("main;idle", &[8]);
        let whole = builder.finish();
        for change in [
            |copy: &mut crate::Profile| copy.samples.rewrite(|_, values, _, _| values[0] > 8),
            |copy: &mut crate::Profile| copy.samples.retain(|values| values[0] > 8),
        ] {
            let mut copy = whole.clone();
            change(&mut copy);
            assert_eq!((copy.samples.len(), whole.samples.len()), (1, 2));
            assert_eq!(whole.samples.stack(1).len(), 2);
        }
    }
}
