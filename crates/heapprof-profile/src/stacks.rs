//! The stacks of all samples: positions of locations, or, until somebody asks, the bytes that a file has for them.
//!
//! Reading ids and writing them again is half of what it takes to pass a profile on.

use std::ops::Range;
use std::sync::OnceLock;

use crate::model::{Location, LocationIndex};
use crate::wire;

/// All stacks, one behind the other, each leaf first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stacks {
    /// All frames; not there yet where they are only written.
    location: OnceLock<Vec<LocationIndex>>,
    /// Where each stack ends in them.
    end: Vec<usize>,
    written: Option<Written>,
}

/// Stacks as packed ids, in as few bytes as these take, where each id is the location's position and 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    bytes: Vec<u8>,
    /// Where each stack ends in them.
    end: Vec<usize>,
    /// The largest id, less 1.
    largest: u32,
}

impl Stacks {
    /// All frames, and where each stack ends in them.
    pub(crate) fn new(location: Vec<LocationIndex>, end: Vec<usize>) -> Self {
        Self {
            location: location.into(),
            end,
            written: None,
        }
    }

    /// Stacks that are not read before somebody asks, and where each would end.
    pub(crate) fn written(written: Written, end: Vec<usize>) -> Self {
        Self {
            location: OnceLock::new(),
            end,
            written: Some(written),
        }
    }

    /// The length of all stacks together.
    pub(crate) fn frames(&self) -> usize {
        self.end.last().copied().unwrap_or(0)
    }

    /// Where the frames of stack `i` are among all.
    fn range(&self, i: usize) -> Range<usize> {
        let begin = if i == 0 { 0 } else { self.end[i - 1] };
        begin..self.end[i]
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> &[LocationIndex] {
        &self.all()[self.range(i)]
    }

    /// The number of frames of stack `i`.
    pub(crate) fn frames_of(&self, i: usize) -> usize {
        self.range(i).len()
    }

    /// The stacks as a file has them whose locations have these ids, if that is known.
    pub(crate) fn as_written(&self, locations: &[Location]) -> Option<&Written> {
        let numbers = locations
            .iter()
            .zip(1..)
            .all(|(location, number)| location.id == number);
        self.written.as_ref().filter(|_| numbers)
    }

    #[inline]
    fn all(&self) -> &Vec<LocationIndex> {
        self.location.get_or_init(|| self.read())
    }

    #[cold]
    fn read(&self) -> Vec<LocationIndex> {
        let bytes = self
            .written
            .as_ref()
            .map_or(&[][..], |written| &written.bytes);
        let (mut all, mut at) = (Vec::with_capacity(self.frames()), 0);
        while let Ok(id) = wire::varint(bytes, &mut at) {
            all.push(LocationIndex((id - 1) as u32));
        }
        all
    }

    /// All frames and the ends of stacks, to change both.
    pub(crate) fn edit(&mut self) -> (&mut Vec<LocationIndex>, &mut Vec<usize>) {
        self.all();
        self.written = None;
        let all = self.location.get_mut().expect("they were read above");
        (all, &mut self.end)
    }
}

impl PartialEq for Stacks {
    fn eq(&self, other: &Self) -> bool {
        self.end == other.end && self.all() == other.all()
    }
}

impl Written {
    /// Adds a stack: its ids, and its packed bytes, if it was packed.
    pub(crate) fn push(&mut self, ids: &[LocationIndex], packed: Option<&[u8]>) {
        match packed {
            // A number that takes more bytes than it needs ends with 0, and no other has a byte 0 but 0 itself.
            Some(packed) if !packed.contains(&0) => self.bytes.extend_from_slice(packed),
            _ => {
                for id in ids {
                    prost::encoding::encode_varint(u64::from(id.0), &mut self.bytes);
                }
            }
        }
        self.end.push(self.bytes.len());
        // 0 is no id: one less is beyond all others.
        let largest = ids.iter().map(|id| id.0.wrapping_sub(1)).max();
        self.largest = self.largest.max(largest.unwrap_or(0));
    }

    /// Whether all ids are of so many that are 1, 2, 3, ...
    pub(crate) fn are_of(&self, count: u32) -> bool {
        self.bytes.is_empty() || self.largest < count
    }

    /// The ids of stack `i`.
    pub(crate) fn get(&self, i: usize) -> &[u8] {
        let begin = if i == 0 { 0 } else { self.end[i - 1] };
        &self.bytes[begin..self.end[i]]
    }

    /// All ids, one stack's after the other's.
    pub(crate) fn ids(&self) -> Vec<LocationIndex> {
        let (mut ids, mut at) = (Vec::new(), 0);
        while let Ok(id) = wire::varint(&self.bytes, &mut at) {
            ids.push(LocationIndex(id as u32));
        }
        ids
    }
}
