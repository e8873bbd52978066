//! Adds up values by stack and labels. So files that list events become profiles that list stacks.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use hashbrown::HashTable;
use heapprof_profile::{
    Error as ProfileError, FunctionIndex, LabelSetIndex, Line, LocationIndex, Mapping, Profile,
    ProfileBuilder, Samples,
};

use crate::error::FormatError;
use crate::memory_budget::MemoryBudget;
use crate::reading::FormatReadOptions;

/// Maximum number of frames in all stacks together, for each byte of the file. This applies to
/// files that describe stacks by their parents, with a line for each frame. Such a file grows with
/// the depth of its stacks, but the stacks grow with the square of this depth. The limit keeps the
/// memory in proportion to the size of the file.
///
/// heaptrack cuts stacks at 64 frames, and a stack takes at least two lines of six bytes. So a file
/// of heaptrack has fewer than six frames for each byte.
const MAX_FRAMES_PER_BYTE: u64 = 16;
/// Number of frames that a file of any size may have, so that small files may have deep recursions.
const MIN_FRAME_LIMIT: u64 = 1 << 20;
/// Maximum number of frames of a file of any size.
const MAX_FRAME_LIMIT: u64 = 1 << 27;

/// A frame as a format's text describes it. Unknown fields are empty or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextFrame<'a> {
    pub(crate) address: u64,
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    pub(crate) line: i64,
    pub(crate) column: i64,
    pub(crate) module: FrameModule<'a>,
}

/// The file that code was loaded from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameModule<'a> {
    pub(crate) name: &'a str,
    pub(crate) build_id: &'a str,
    /// Address at which the file begins in memory. It is 0 if frames have offsets in the file
    /// instead of addresses, or if this address is unknown.
    pub(crate) base: u64,
}

/// A profile under construction. Each sample has a distinct combination of stack and labels.
pub(crate) struct SampleTally {
    pub(crate) builder: ProfileBuilder,
    /// Index of each sample, by its stack and labels.
    index: HashTable<u32>,
    hasher: RandomState,
    /// Locations by the text of the frame that they were made from.
    seen: HashMap<Box<[u8]>, LocationIndex>,
    /// Lines of the location that is being made. The allocation is reused.
    lines: Vec<Line>,
    /// The values of a new sample, which are all 0.
    nothing: Vec<i64>,
    budget: MemoryBudget,
    /// Total length of the texts in `seen`, in bytes.
    seen_bytes: usize,
}

impl SampleTally {
    /// Makes a tally without samples. `types` has the names and units of the sample types, and
    /// `options` the memory limit.
    pub(crate) fn new(types: &[(&str, &str)], options: &FormatReadOptions) -> Self {
        Self::from_parts(ProfileBuilder::new(types), MemoryBudget::new(options))
    }

    fn from_parts(builder: ProfileBuilder, budget: MemoryBudget) -> Self {
        Self {
            builder,
            index: HashTable::new(),
            hasher: RandomState::default(),
            seen: HashMap::new(),
            lines: Vec::new(),
            nothing: Vec::new(),
            budget,
            seen_bytes: 0,
        }
    }

    /// Counts bytes that were added to the tally. Too much memory is an error.
    pub(crate) fn count_growth(&mut self, bytes: usize) -> Result<(), FormatError> {
        let Self {
            builder,
            index,
            seen,
            seen_bytes,
            budget,
            ..
        } = self;
        budget.grow(bytes, || {
            // The builder also stores each location, function and mapping as a key.
            let profile = 2 * builder.profile.memory();
            let index = index.capacity() * 2 * size_of::<u32>();
            let seen = *seen_bytes + seen.capacity() * 2 * size_of::<(usize, usize, u32)>();
            profile.saturating_add((index + seen) as u64)
        })
    }

    /// Returns the location for the text of a frame. If the text is new, `make` makes the location.
    pub(crate) fn find_or_make(
        &mut self,
        text: &[u8],
        make: impl FnOnce(&mut Self) -> Result<LocationIndex, FormatError>,
    ) -> Result<LocationIndex, FormatError> {
        if let Some(&location) = self.seen.get(text) {
            return Ok(location);
        }
        let location = make(self)?;
        self.seen.insert(text.into(), location);
        self.seen_bytes += text.len();
        // The bytes are the text, the objects that are made from it, and its entries in tables.
        self.count_growth(2 * text.len() + 200)?;
        Ok(location)
    }

    /// Returns a location with a function for each named frame, innermost first. The first frame
    /// determines the address and the module. Too much memory is an error.
    pub(crate) fn location(
        &mut self,
        frames: &[TextFrame<'_>],
    ) -> Result<LocationIndex, FormatError> {
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        for frame in frames.iter().filter(|f| !f.name.is_empty()) {
            lines.push(Line {
                function: self.function(frame.name, frame.file),
                line: frame.line,
                column: frame.column,
            });
        }
        let first = frames.first().copied().unwrap_or_default();
        let mapping = (!first.module.name.is_empty()).then(|| {
            let mapping = Mapping {
                memory_start: first.module.base,
                filename: self.builder.text(first.module.name),
                build_id: self.builder.text(first.module.build_id),
                ..Mapping::default()
            };
            self.builder.mapping(mapping)
        });
        let location = self.builder.location(mapping, first.address, false, &lines);
        self.lines = lines;
        let texts = frames
            .iter()
            .map(|frame| frame.name.len() + frame.file.len());
        self.count_growth(100 * (1 + frames.len()) + texts.sum::<usize>())?;
        Ok(location)
    }

    fn function(&mut self, name: &str, file: &str) -> FunctionIndex {
        let (name, file) = (self.builder.text(name), self.builder.text(file));
        self.builder.named_function(name, file)
    }

    /// Returns a location that has only a name.
    pub(crate) fn named_location(&mut self, name: &str) -> Result<LocationIndex, FormatError> {
        self.location(&[TextFrame {
            name,
            ..TextFrame::default()
        }])
    }

    /// Returns the label set with one text label; the empty set if the text is empty.
    pub(crate) fn text_label_set(&mut self, key: &str, text: &str) -> LabelSetIndex {
        if text.is_empty() {
            return self.builder.label_set(&mut []);
        }
        let label = self.builder.text_label(key, text);
        self.builder.label_set(&mut [label])
    }

    /// Adds `values` to the sample with this stack (leaf first) and these labels. Returns the index
    /// of the sample.
    pub(crate) fn add(
        &mut self,
        stack: &[LocationIndex],
        labels: LabelSetIndex,
        values: &[i64],
    ) -> Result<u32, FormatError> {
        let sample = self.sample(stack, labels, values.len())?;
        self.add_to(sample, values)?;
        Ok(sample)
    }

    /// Adds `values` to the sample with this index.
    pub(crate) fn add_to(&mut self, sample: u32, values: &[i64]) -> Result<(), FormatError> {
        let sums = self.builder.profile.samples.values_mut(sample as usize);
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum = sum.checked_add(value).ok_or_else(|| overflow("a sum"))?;
        }
        Ok(())
    }

    fn sample(
        &mut self,
        stack: &[LocationIndex],
        labels: LabelSetIndex,
        width: usize,
    ) -> Result<u32, FormatError> {
        let samples = &mut self.builder.profile.samples;
        let hash = self.hasher.hash_one((stack, labels));
        let same = |&i: &u32| {
            samples.label_set(i as usize) == labels && samples.stack(i as usize) == stack
        };
        if let Some(&sample) = self.index.find(hash, same) {
            return Ok(sample);
        }
        let sample = u32::try_from(samples.len()).map_err(|_| overflow("the number of stacks"))?;
        self.nothing.resize(width, 0);
        samples.push(stack.iter().copied(), &self.nothing, labels);
        self.index.insert_unique(hash, sample, |&i| {
            let i = i as usize;
            self.hasher
                .hash_one((samples.stack(i), samples.label_set(i)))
        });
        self.count_growth(size_of_val(stack) + 8 * width + 24)?;
        Ok(sample)
    }

    /// Returns the stack of a sample.
    pub(crate) fn stack(&self, sample: u32) -> &[LocationIndex] {
        self.builder.profile.samples.stack(sample as usize)
    }

    /// Returns the largest location index in any stack.
    pub(crate) fn largest_location(&self) -> Option<u32> {
        let samples = (0..self.len()).flat_map(|i| self.stack(i as u32));
        samples.map(|location| location.0).max()
    }

    /// Returns the number of samples.
    pub(crate) fn len(&self) -> usize {
        self.builder.profile.samples.len()
    }

    /// Replaces the sample types and all values. `values` has a row for each sample, in order.
    pub(crate) fn with_values(mut self, types: &[(&str, &str)], values: Vec<i64>) -> Self {
        let profile = &mut self.builder.profile;
        profile.samples.set_values(types.len(), values);
        let types = types
            .iter()
            .map(|(r#type, unit)| self.builder.value_type(r#type, unit));
        self.builder.profile.sample_type = types.collect();
        self
    }

    /// Replaces each location by the entry of `locations` at its index. Samples whose stacks become
    /// equal are added up.
    pub(crate) fn relocated(mut self, locations: &[LocationIndex]) -> Result<Self, FormatError> {
        let builder = std::mem::take(&mut self.builder);
        let mut tally = Self::from_parts(builder, self.budget);
        let width = tally.builder.profile.sample_type.len();
        let samples = Samples::new(width);
        let samples = std::mem::replace(&mut tally.builder.profile.samples, samples);
        let mut stack = Vec::new();
        for i in 0..samples.len() {
            let of = |location: &LocationIndex| locations.get(location.index()).copied();
            stack.clear();
            stack.extend(samples.stack(i).iter().filter_map(of));
            tally.add(&stack, samples.label_set(i), samples.values(i))?;
        }
        Ok(tally)
    }

    /// Replaces the sample types. Values beyond the number of types are left out.
    pub(crate) fn retyped(self, types: &[(&str, &str)]) -> Self {
        let samples = &self.builder.profile.samples;
        let rows = (0..samples.len()).map(|i| samples.values(i));
        let values = rows
            .flat_map(|row| row.iter().take(types.len()).copied())
            .collect();
        self.with_values(types, values)
    }

    /// Adds a comment to the profile.
    pub(crate) fn comment(&mut self, text: &str) {
        let comment = self.builder.text(text);
        self.builder.profile.comment.push(comment);
    }

    /// Returns the profile, without samples whose values are all 0.
    pub(crate) fn finish(mut self) -> Profile {
        let samples = &mut self.builder.profile.samples;
        samples.retain(|values| values.iter().any(|&v| v != 0));
        let mut profile = self.builder.finish();
        describe_mappings(&mut profile);
        profile
    }
}

/// Ends each mapping after its last known address, and marks whether functions, files and lines are
/// known in it. A mapping whose first address is unknown still begins at 0. In `perf script`,
/// addresses are offsets in the file, and a later beginning would change these offsets.
fn describe_mappings(profile: &mut Profile) {
    /// Size of a page. Mappings consist of pages.
    const PAGE_SIZE: u64 = 4096;
    for location in &profile.location {
        let Some(mapping) = location.mapping else {
            continue;
        };
        let mapping = &mut profile.mapping[mapping.index()];
        let start = location.address - location.address % PAGE_SIZE;
        mapping.memory_limit = mapping.memory_limit.max(start.saturating_add(PAGE_SIZE));
    }
    profile.mark_symbolized(|_| true);
}

/// Makes an error for a number that does not fit in 64 bits.
#[cold]
pub(crate) fn overflow(what: &str) -> FormatError {
    FormatError::Profile(ProfileError::Overflow {
        what: what.to_string(),
    })
}

/// Budget of frames for files that describe stacks by their parents.
pub(crate) struct FrameBudget {
    left: u64,
    bytes: u64,
}

impl FrameBudget {
    /// Makes the budget for a file of `bytes` unpacked bytes.
    pub(crate) fn for_file_bytes(bytes: u64) -> Self {
        Self {
            left: Self::frame_limit(bytes),
            bytes,
        }
    }

    fn frame_limit(bytes: u64) -> u64 {
        let allowed = MIN_FRAME_LIMIT.saturating_add(bytes.saturating_mul(MAX_FRAMES_PER_BYTE));
        allowed.min(MAX_FRAME_LIMIT)
    }

    /// Counts one more frame. Exceeding the limit is an error.
    pub(crate) fn count(&mut self) -> Result<(), FormatError> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| {
            let (allowed, bytes) = (Self::frame_limit(self.bytes), self.bytes);
            FormatError::TooMuch(format!(
                "{allowed} frames in the stacks that {bytes} bytes of text describe"
            ))
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_one_sample() {
        let mut tally = SampleTally::new(
            &[("inuse_objects", "count"), ("inuse_space", "bytes")],
            &FormatReadOptions::default(),
        );
        let module = FrameModule {
            name: "/bin/app",
            base: 0x40_0000,
            ..FrameModule::default()
        };
        let inner = TextFrame {
            address: 0x40_1234,
            name: "inner",
            file: "a.h",
            line: 3,
            column: 9,
            module,
        };
        let outer = TextFrame {
            name: "outer",
            ..inner
        };
        let leaf = tally.location(&[inner, outer]).unwrap();
        let root = tally.named_location("main").unwrap();
        let none = tally.text_label_set("leak", "");
        let direct = tally.text_label_set("leak", "direct");
        tally.add(&[leaf, root], none, &[1, 10]).unwrap();
        tally.add(&[leaf, root], direct, &[1, 5]).unwrap();
        tally.add(&[root], none, &[0, 0]).unwrap();
        tally.add(&[leaf, root], none, &[2, 20]).unwrap();
        let error = tally.add(&[leaf, root], none, &[0, i64::MAX]).unwrap_err();
        assert!(error.to_string().contains("does not fit in 64 bits"));
        let profile = tally.finish();
        let values: Vec<&[i64]> = (0..profile.samples.len())
            .map(|i| profile.samples.values(i))
            .collect();
        assert_eq!(values, [[3, 30], [1, 5]]);
        let mapping = profile.mapping[0];
        assert_eq!(
            (mapping.memory_start, mapping.memory_limit),
            (0x40_0000, 0x40_2000)
        );
        assert!(mapping.has_inline_frames && mapping.has_line_numbers);
        assert_eq!(profile.lines(&profile.location[leaf.index()])[0].column, 9);
        assert!(profile.lines(&profile.location[root.index()]).len() == 1);
    }

    /// Checks the memory limit. Many short stacks take far more memory than their text.
    #[test]
    fn memory_is_bounded() {
        let options = FormatReadOptions::default().max_inflated(0);
        let mut tally = SampleTally::new(&[("space", "bytes")], &options);
        let none = tally.text_label_set("", "");
        let add = |i: u32| {
            let text = i.to_string();
            let location =
                tally.find_or_make(text.as_bytes(), |tally| tally.named_location(&text))?;
            tally.add(&[location], none, &[1])
        };
        let error = (0..2_000_000).map(add).find_map(Result::err).unwrap();
        let expected = "takes more than 8388608 bytes of memory";
        assert_eq!(error.to_string(), expected);
        assert!(tally.builder.profile.memory() > 1 << 20);
    }

    #[test]
    fn mappings_hold_their_addresses() {
        for (address, limit) in [(0, 4096), (4095, 4096), (4096, 8192), (u64::MAX, u64::MAX)] {
            let mut tally = SampleTally::new(&[("space", "bytes")], &FormatReadOptions::default());
            let module = FrameModule {
                name: "lib.so",
                ..FrameModule::default()
            };
            let frame = TextFrame {
                address,
                module,
                ..TextFrame::default()
            };
            let location = tally.location(&[frame]).unwrap();
            let none = tally.text_label_set("", "");
            tally.add(&[location], none, &[1]).unwrap();
            let mapping = tally.finish().mapping[0];
            assert_eq!((mapping.memory_start, mapping.memory_limit), (0, limit));
        }
    }
}
