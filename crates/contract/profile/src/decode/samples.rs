//! Reads the samples of a file directly into columns, in one pass and without an allocation for
//! each sample. Samples are most of a file.

use std::hash::BuildHasher;

use crate::hashing::RandomState;
use hashbrown::HashTable;

use super::stack::read_short;
use super::stand_in::StandIns;
use crate::error::{Error, ProfileElement};
use crate::model::spread::{MAX_SAMPLED, is_variance};
use crate::model::stacks::EncodedStacks;
use crate::model::{Label, LabelSetIndex, LocationIndex, Samples};
use crate::parts::{hash_table_memory, range};
use crate::wire::{MessageFields, WireValue};

/// Number of the field with a sample's counts of sampled blocks. pprof does not know this field.
/// See docs/formats/spread.md.
pub(crate) const SAMPLED_FIELD: u32 = 1001;
pub(crate) const VARIANCE_FIELD: u32 = 1002;

/// A label whose texts are still string numbers of the file.
#[derive(Clone, Copy, Default)]
pub(super) struct RawLabel {
    pub(super) key: u64,
    pub(super) str: u64,
    pub(super) num: i64,
    pub(super) num_unit: u64,
}

/// Samples whose locations are still the ids of the file, or 32-bit stand-ins for these ids. Their
/// label sets are positions in `label_sets`.
#[derive(Default)]
pub(super) struct RawSamples {
    pub(super) samples: Samples,
    /// The location ids of all stacks, or stand-ins for these ids. If `written` holds the stacks,
    /// this list has only the last stack.
    pub(super) stacks: Vec<LocationIndex>,
    /// For each stack, the position after its last frame, counted over the frames of all stacks.
    pub(super) end: Vec<usize>,
    pub(super) locations: StandIns,
    /// The stacks, encoded as in the file, if the caller asked for that.
    pub(super) written: Option<EncodedStacks>,
    /// The distinct label sets, each with the number of the first sample that has it. Set 0 is the
    /// empty set.
    pub(super) label_sets: Vec<(Vec<RawLabel>, usize)>,
    /// Total number of labels in all sets.
    labels: usize,
    /// The encoded bytes of each label set, to recognize a set that was read before.
    label_bytes: Vec<u8>,
    label_end: Vec<usize>,
    label_index: HashTable<u32>,
    hasher: RandomState,
    scratch: Vec<u8>,
    /// Whether to ignore the fields for the spread of samples, which pprof does not know.
    pub(super) without_spread: bool,
    /// Numbers of sampled blocks, one for each value of the last sample.
    sampled: Vec<u64>,
    variance: Vec<f64>,
}

impl RawSamples {
    /// Makes an empty list of samples whose stacks will stay encoded, as in the file.
    pub(super) fn keeping_bytes() -> Self {
        Self {
            written: Some(EncodedStacks::default()),
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end.is_empty()
    }

    /// Estimates how many bytes the samples take, including the additional memory for resolved
    /// references.
    pub(super) fn memory(&self) -> u64 {
        /// Estimated size, in bytes, of a list of a few labels: four labels and the allocator's
        /// overhead.
        const LABEL_LIST_BYTES: usize = 4 * size_of::<RawLabel>() + 16;
        let samples = size_of_val(&self.samples.value[..])
            + size_of_val(&self.samples.label_set[..])
            + size_of_val(&self.end[..]);
        let stacks = match &self.written {
            // After a caller has asked for frames, both the frames and the bytes are in memory.
            Some(_) => self.end.last().copied().unwrap_or(0) * size_of::<LocationIndex>(),
            None => size_of_val(&self.stacks[..]),
        };
        let written = self.written.as_ref().map_or(0, EncodedStacks::memory);
        let labels = self.label_sets.len()
            * (size_of::<(Vec<RawLabel>, usize)>() + LABEL_LIST_BYTES)
            + self.labels * (2 * size_of::<RawLabel>() + size_of::<Label>())
            + self.label_bytes.len()
            + size_of_val(&self.label_end[..])
            + self.scratch.len();
        (samples + stacks + labels) as u64
            + self.samples.spread_memory()
            + written
            + hash_table_memory::<u32>(self.label_index.capacity())
            + self.locations.memory()
    }

    /// Reads one sample, whose body begins at `offset` in the profile.
    pub(super) fn read(&mut self, body: &[u8], offset: u64) -> Result<(), Error> {
        let number = self.samples.len() + 1;
        let mut fields = MessageFields::new(body, offset, ProfileElement::Sample(number));
        let first_value = self.samples.value.len();
        self.scratch.clear();
        let last_end = self.end.last().copied().unwrap_or(0);
        let mut first_frame = last_end;
        if self.written.is_some() {
            self.stacks.clear();
            first_frame = 0;
        }
        // The packed ids, if all are in one field.
        let mut packed_ids = None;
        let mut has_spread = false;
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => {
                    let stack = &mut self.stacks;
                    packed_ids = match value {
                        WireValue::Bytes(packed) if stack.len() == first_frame => Some(packed),
                        _ => None,
                    };
                    let rest = match value {
                        WireValue::Bytes(packed) => {
                            WireValue::Bytes(&packed[read_short(packed, stack)..])
                        }
                        one => one,
                    };
                    let locations = &mut self.locations;
                    fields.numbers(field, rest, |id| {
                        stack.push(LocationIndex(locations.stand_in_for(id)));
                    })?;
                }
                2 => {
                    let values = &mut self.samples.value;
                    fields.numbers(field, value, |v| values.push(v as i64))?;
                }
                3 => {
                    let label = fields.bytes(field, value)?;
                    self.scratch.extend((label.len() as u32).to_le_bytes());
                    self.scratch.extend_from_slice(label);
                }
                SAMPLED_FIELD | VARIANCE_FIELD if !self.without_spread => {
                    if !std::mem::replace(&mut has_spread, true) {
                        self.sampled.clear();
                        self.variance.clear();
                    }
                    match field {
                        SAMPLED_FIELD => fields.numbers(field, value, |n| self.sampled.push(n))?,
                        _ => fields.words(field, value, |word| {
                            self.variance.push(f64::from_bits(word));
                        })?,
                    }
                }
                _ => {}
            }
        }
        let values = self.samples.value.len() - first_value;
        if values == 0 {
            // A sample without values is an error because every profile has a sample type. Such
            // samples take two bytes in the file, and far more in memory.
            return Err(Error::Invalid {
                offset: Some(offset),
                object: ProfileElement::Sample(number),
                defect: "has no values".to_string(),
                hint: "",
            });
        }
        if number == 1 {
            self.samples.width = values;
        } else if values != self.samples.width {
            return Err(Error::Invalid {
                offset: Some(offset),
                object: ProfileElement::Sample(number),
                defect: format!(
                    "has {values} values, the samples before it have {}",
                    self.samples.width
                ),
                hint: "",
            });
        }
        let stack = &self.stacks[first_frame..];
        self.end.push(last_end + stack.len());
        if let Some(written) = &mut self.written {
            // If a stand-in represents an id, the id's bytes in the file can't be used.
            written.push(stack, packed_ids.filter(|_| self.locations.is_empty()));
        }
        let label_set = match self.scratch.is_empty() {
            true => 0,
            false => self.label_set(offset, number)?,
        };
        self.samples.label_set.push(LabelSetIndex(label_set));
        if has_spread {
            self.spread(offset, number)?;
        } else if let Some(spread) = &mut self.samples.spread {
            spread.extend_to(self.samples.value.len());
        }
        Ok(())
    }

    /// Checks the spread of the last sample and stores it.
    #[inline(never)]
    fn spread(&mut self, offset: u64, number: usize) -> Result<(), Error> {
        let width = self.samples.width;
        let (counts, variances) = (self.sampled.len(), self.variance.len());
        let defect = if (counts, variances) != (width, width) {
            format!("has {counts} counts of samples and {variances} variances for {width} values")
        } else if let Some(count) = self.sampled.iter().find(|&&n| n > MAX_SAMPLED) {
            format!("has a value of {count} samples, more than is possible")
        } else if let Some(number) = self.variance.iter().find(|&&v| !is_variance(v)) {
            format!("has the impossible variance {number}")
        } else {
            let last = self.samples.label_set.len() - 1;
            self.samples.set_spread(last, &self.sampled, &self.variance);
            return Ok(());
        };
        Err(Error::Invalid {
            offset: Some(offset),
            object: ProfileElement::Sample(number),
            defect,
            hint: "",
        })
    }

    /// Returns the number of the label set whose bytes are in `scratch`. Sets with equal bytes are
    /// equal. Sets with unequal bytes may be equal, too; `resolve` merges such sets.
    fn label_set(&mut self, offset: u64, sample: usize) -> Result<u32, Error> {
        let hash = self.hasher.hash_one(&self.scratch[..]);
        let (bytes, end, scratch) = (&self.label_bytes, &self.label_end, &self.scratch);
        let same = |&id: &u32| bytes[range(end, id as usize)] == scratch[..];
        if let Some(&id) = self.label_index.find(hash, same) {
            return Ok(id + 1);
        }
        let labels = parse(&self.scratch, offset, sample)?;
        if self.label_sets.is_empty() {
            self.label_sets.push((Vec::new(), 0));
        }
        self.labels += labels.len();
        self.label_sets.push((labels, sample));
        let id = self.label_end.len() as u32;
        self.label_bytes.extend_from_slice(&self.scratch);
        self.label_end.push(self.label_bytes.len());
        let (bytes, end, hasher) = (&self.label_bytes, &self.label_end, &self.hasher);
        self.label_index.insert_unique(hash, id, |&id| {
            hasher.hash_one(&bytes[range(end, id as usize)])
        });
        Ok(id + 1)
    }
}

fn parse(mut encoded: &[u8], offset: u64, sample: usize) -> Result<Vec<RawLabel>, Error> {
    let mut labels = Vec::new();
    while let Some((length, rest)) = encoded.split_first_chunk() {
        let (body, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        encoded = rest;
        let mut label = RawLabel::default();
        let mut fields = MessageFields::new(body, offset, ProfileElement::Label(sample));
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => label.key = fields.number(field, value)?,
                2 => label.str = fields.number(field, value)?,
                3 => label.num = fields.number(field, value)? as i64,
                4 => label.num_unit = fields.number(field, value)?,
                _ => {}
            }
        }
        labels.push(label);
    }
    Ok(labels)
}
