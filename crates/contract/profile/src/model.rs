//! The profile model: pprof's messages with references resolved to indices and text interned.

mod paths;
pub(crate) mod spread;
pub(crate) mod stacks;

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use crate::hashing::RandomState;
use hashbrown::HashTable;

use crate::error::Warning;
use crate::parts::range;
use crate::strings::{StringId, StringTable};
use spread::SpreadTable;
use stacks::SampleStacks;

macro_rules! index {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// Returns the index as a position in its table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
index!(
    /// A position in [`Profile::mapping`].
    MappingIndex,
    /// A position in [`Profile::location`].
    LocationIndex,
    /// A position in [`Profile::function`].
    FunctionIndex,
    /// A position in [`Profile::label_sets`]. The default, 0, is the empty set.
    #[derive(Default)]
    LabelSetIndex
);

/// A heap profile (or any other pprof profile).
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// All text that the other tables refer to.
    pub strings: StringTable,
    /// Type and unit of each value of a sample.
    pub sample_type: Vec<ValueType>,
    /// Observations: stacks with their values and labels.
    pub samples: Samples,
    /// The label sets that samples refer to.
    pub label_sets: LabelSets,
    /// The mapped files; the first one is the main binary.
    pub mapping: Vec<Mapping>,
    /// The locations (places in the program) that stacks consist of.
    pub location: Vec<Location>,
    /// The lines of all locations, one location after the other.
    pub line: Vec<Line>,
    /// The functions that lines refer to.
    pub function: Vec<Function>,
    /// A regular expression for functions to cut from stacks, with everything that they called.
    pub drop_frames: StringId,
    /// Regular expression for functions that are exempt from `drop_frames`.
    pub keep_frames: StringId,
    /// Time of the profile in nanoseconds since 1970, UTC; 0 when unknown.
    pub time_nanos: i64,
    /// Duration of the recording in nanoseconds; 0 for a single moment.
    pub duration_nanos: i64,
    /// Type and unit of `period`.
    pub period_type: Option<ValueType>,
    /// Average amount of `period_type` between two samples.
    pub period: i64,
    /// Comments by the program that wrote the profile.
    pub comment: Vec<StringId>,
    /// Name of the sample type that is shown first.
    pub default_sample_type: StringId,
    /// Address of documentation about the profile.
    pub doc_url: StringId,
    /// Oddities that were found when the profile was read or merged. They are not written to a
    /// file.
    pub warnings: Vec<Warning>,
}

/// A kind of value and its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValueType {
    /// The kind of value, e.g. `inuse_space`.
    pub r#type: StringId,
    /// Unit of the value, e.g. `bytes`.
    pub unit: StringId,
}

/// A mapped file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// Id of the mapping in the file. It is unique and not 0.
    pub id: u64,
    /// First address of the mapping.
    pub memory_start: u64,
    /// Address after the last byte of the mapping.
    pub memory_limit: u64,
    /// Offset of `memory_start` in the file.
    pub file_offset: u64,
    /// Path of the file.
    pub filename: StringId,
    /// The file's build id.
    pub build_id: StringId,
    /// Whether the functions of the mapping's locations are known.
    pub has_functions: bool,
    /// Whether the source file names of the mapping's locations are known.
    pub has_filenames: bool,
    /// Whether the line numbers of the mapping's locations are known.
    pub has_line_numbers: bool,
    /// Whether the inlined functions of the mapping's locations are known.
    pub has_inline_frames: bool,
}

/// A place in the program. A location without symbols has no lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Id of the location in the file. It is unique and not 0.
    pub id: u64,
    /// The mapping that holds `address`.
    pub mapping: Option<MappingIndex>,
    /// Address of the instruction.
    pub address: u64,
    /// Range of the location's lines in [`Profile::line`], innermost inlined function first.
    pub line: Range<u32>,
    /// Whether the linker folded several functions into this code.
    pub is_folded: bool,
}

/// A source line of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Function that the line is in.
    pub function: FunctionIndex,
    /// Line number from 1; 0 when unknown.
    pub line: i64,
    /// Column; 0 when unknown.
    pub column: i64,
}

/// A function of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// Id of the function in the file. It is unique and not 0.
    pub id: u64,
    /// Name of the function for people.
    pub name: StringId,
    /// Name of the function for the linker.
    pub system_name: StringId,
    /// Source file of the function.
    pub filename: StringId,
    /// First line of the function; 0 when unknown.
    pub start_line: i64,
}

/// A label: a text if `str` is not empty, otherwise a number with a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Label {
    /// Property that the label describes, e.g. `bytes`.
    pub key: StringId,
    /// Text of the label; empty for a number.
    pub str: StringId,
    /// Number of the label; 0 for a text.
    pub num: i64,
    /// Unit of the number; may be empty.
    pub num_unit: StringId,
}

/// All samples, column by column, so that a million of them take a handful of allocations instead
/// of millions.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    pub(crate) width: usize,
    /// The stacks, which copies of the samples share until one of them changes its stacks.
    pub(crate) stacks: Arc<SampleStacks>,
    pub(crate) value: Vec<i64>,
    pub(crate) label_set: Vec<LabelSetIndex>,
    /// Spread of the values: how far they may be from the truth; `None` if no value is an estimate
    /// with a known spread.
    pub(crate) spread: Option<SpreadTable>,
}

impl Samples {
    /// Makes an empty table for samples of `width` values each.
    pub fn new(width: usize) -> Self {
        Self {
            width,
            ..Self::default()
        }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.label_set.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.label_set.is_empty()
    }

    /// Returns the stack of sample `i`, leaf first.
    #[inline]
    pub fn stack(&self, i: usize) -> &[LocationIndex] {
        self.stacks.get(i)
    }

    /// Returns the values of sample `i`, one for each sample type.
    #[inline]
    pub fn values(&self, i: usize) -> &[i64] {
        &self.value[i * self.width..(i + 1) * self.width]
    }

    /// Returns the sum of the values of all samples for the sample type at a position.
    ///
    /// # Panics
    /// When there are samples, but no such sample type.
    pub fn total(&self, column: usize) -> i128 {
        let all = (0..self.len()).map(|i| i128::from(self.values(i)[column]));
        all.sum()
    }

    /// Returns the index of the label set of sample `i`.
    #[inline]
    pub fn label_set(&self, i: usize) -> LabelSetIndex {
        self.label_set[i]
    }

    /// Returns the total number of frames in all stacks.
    pub fn frames(&self) -> usize {
        self.stacks.frames()
    }

    /// Returns how many bytes of memory the samples take, without their spread.
    pub fn memory(&self) -> u64 {
        let stacks = self.frames() * size_of::<LocationIndex>() + self.len() * size_of::<usize>();
        (stacks + size_of_val(&self.value[..]) + size_of_val(&self.label_set[..])) as u64
    }

    /// Numbers the nodes of the tree of all stacks, and returns the number of each sample's stack.
    /// The number of the empty stack is 0.
    ///
    /// `number` chooses the number of a node. Its arguments are the number of the node's parent,
    /// the entry of `locations` for the node's location (locations with equal entries count as
    /// one), and the number of samples that go through the node. `number` is called once for each
    /// node, parents first.
    ///
    /// # Errors
    /// Returns the first error of `number`.
    pub fn number_stacks<E>(
        &self,
        locations: &[i64],
        number: impl FnMut(i64, i64, u64) -> Result<i64, E>,
    ) -> Result<Vec<i64>, E> {
        paths::number(self, locations, number)
    }

    /// Adds a sample.
    ///
    /// # Panics
    /// When the number of `values` is not the table's number of values per sample.
    pub fn push(
        &mut self,
        stack: impl IntoIterator<Item = LocationIndex>,
        values: &[i64],
        label_set: LabelSetIndex,
    ) {
        assert_eq!(values.len(), self.width, "one value a sample type");
        let (location, end) = Arc::make_mut(&mut self.stacks).edit();
        location.extend(stack);
        end.push(location.len());
        self.value.extend_from_slice(values);
        self.label_set.push(label_set);
        if let Some(spread) = &mut self.spread {
            spread.extend_to(self.value.len());
        }
    }

    /// Returns the values of sample `i`, which may be changed.
    pub fn values_mut(&mut self, i: usize) -> &mut [i64] {
        &mut self.value[i * self.width..(i + 1) * self.width]
    }

    /// Replaces the values of all samples by `values`, which holds `width` values for each sample,
    /// in the order of the samples. The old spread is removed.
    ///
    /// # Panics
    /// When `values` does not hold `width` values for each sample.
    pub fn set_values(&mut self, width: usize, values: Vec<i64>) {
        assert_eq!(values.len(), width * self.len(), "a row for each sample");
        self.width = width;
        self.value = values;
        self.spread = None;
    }

    /// Removes the samples for whose values `keep` returns false. The remaining samples move up in
    /// place, in their order.
    ///
    /// ```
    /// use heapprof_profile::ProfileBuilder;
    /// let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    /// builder.add_folded("main;parse", &[96]);
    /// builder.add_folded("main;idle", &[8]);
    /// let mut profile = builder.finish();
    /// profile.samples.retain(|values| values[0] >= 64);
    /// assert_eq!(profile.samples.len(), 1);
    /// assert_eq!(profile.samples.values(0), [96]);
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&[i64]) -> bool) {
        let samples = self.len();
        let (location, end) = Arc::make_mut(&mut self.stacks).edit();
        let (mut kept, mut start, mut filled) = (0, 0, 0);
        for i in 0..samples {
            let stack = start..end[i];
            start = stack.end;
            let values = i * self.width..(i + 1) * self.width;
            if !keep(&self.value[values.clone()]) {
                continue;
            }
            let frames = stack.len();
            location.copy_within(stack, filled);
            filled += frames;
            end[kept] = filled;
            self.value.copy_within(values.clone(), kept * self.width);
            if let Some(spread) = &mut self.spread {
                spread.copy_within(values, kept * self.width);
            }
            self.label_set[kept] = self.label_set[i];
            kept += 1;
        }
        location.truncate(filled);
        end.truncate(kept);
        self.value.truncate(kept * self.width);
        if let Some(spread) = &mut self.spread {
            spread.extend_to(self.value.len());
        }
        self.label_set.truncate(kept);
    }

    /// Gives every sample a new stack, or removes the sample. `change` receives the stack, the
    /// values and the labels, and appends the new stack to a list, leaf first. A sample for which
    /// `change` returns false is removed.
    pub fn rewrite<F>(&mut self, mut change: F)
    where
        F: FnMut(&[LocationIndex], &[i64], LabelSetIndex, &mut Vec<LocationIndex>) -> bool,
    {
        let samples = self.len();
        let old = std::mem::take(&mut self.stacks);
        let mut location = Vec::with_capacity(old.frames());
        let mut end = Vec::with_capacity(samples);
        let mut kept = 0;
        for i in 0..samples {
            let before = location.len();
            let values = i * self.width..(i + 1) * self.width;
            if !change(
                old.get(i),
                &self.value[values.clone()],
                self.label_set[i],
                &mut location,
            ) {
                location.truncate(before);
                continue;
            }
            end.push(location.len());
            self.value.copy_within(values.clone(), kept * self.width);
            if let Some(spread) = &mut self.spread {
                spread.copy_within(values, kept * self.width);
            }
            self.label_set[kept] = self.label_set[i];
            kept += 1;
        }
        self.stacks = Arc::new(SampleStacks::new(location, end));
        self.value.truncate(kept * self.width);
        if let Some(spread) = &mut self.spread {
            spread.extend_to(self.value.len());
        }
        self.label_set.truncate(kept);
    }

    /// Replaces the label set of every sample by the set that `change` returns for it.
    pub fn relabel(&mut self, mut change: impl FnMut(LabelSetIndex) -> LabelSetIndex) {
        for set in &mut self.label_set {
            *set = change(*set);
        }
    }

    /// Changes every value. `change` receives the position of the value's sample type, and the
    /// value. The old spread is removed.
    pub fn change_values(&mut self, mut change: impl FnMut(usize, i64) -> i64) {
        self.spread = None;
        for values in self.value.chunks_mut(self.width.max(1)) {
            for (column, value) in values.iter_mut().enumerate() {
                *value = change(column, *value);
            }
        }
    }
}

/// Distinct sets of labels. Within a set, texts come before numbers, and both are ordered by key.
#[derive(Clone, Debug)]
pub struct LabelSets {
    label: Vec<Label>,
    end: Vec<usize>,
    index: HashTable<u32>,
    hasher: RandomState,
}

impl Default for LabelSets {
    fn default() -> Self {
        let mut sets = Self {
            label: Vec::new(),
            end: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
        };
        sets.intern(&mut Vec::new(), &StringTable::new());
        sets
    }
}

impl LabelSets {
    /// Returns the index of the set of `labels`, which is added if it is new. Sorts `labels`.
    pub fn intern(&mut self, labels: &mut [Label], strings: &StringTable) -> LabelSetIndex {
        labels.sort_by(|a, b| {
            let number = |label: &Label| label.str.is_empty();
            (number(a), strings.get(a.key)).cmp(&(number(b), strings.get(b.key)))
        });
        let hash = self.hasher.hash_one(&*labels);
        let (all, end) = (&self.label, &self.end);
        if let Some(&id) = self.index.find(hash, |&id| set(all, end, id) == labels) {
            return LabelSetIndex(id);
        }
        let id = u32::try_from(self.end.len()).expect("fewer than 2^32 label sets");
        self.label.extend_from_slice(labels);
        self.end.push(self.label.len());
        let (all, end, hasher) = (&self.label, &self.end, &self.hasher);
        self.index
            .insert_unique(hash, id, |&id| hasher.hash_one(set(all, end, id)));
        LabelSetIndex(id)
    }

    /// Returns the labels of a set.
    pub fn get(&self, set_index: LabelSetIndex) -> &[Label] {
        set(&self.label, &self.end, set_index.0)
    }

    /// Returns the number of sets, including the empty one.
    pub fn len(&self) -> usize {
        self.end.len()
    }

    /// Always false, because the empty set is always there.
    pub fn is_empty(&self) -> bool {
        self.end.is_empty()
    }
}

fn set<'a>(label: &'a [Label], end: &[usize], id: u32) -> &'a [Label] {
    &label[range(end, id as usize)]
}

impl Profile {
    /// Estimates how many bytes of memory the profile's samples, tables and texts take.
    pub fn memory(&self) -> u64 {
        let tables = size_of_val(&self.mapping[..])
            + size_of_val(&self.location[..])
            + size_of_val(&self.line[..])
            + size_of_val(&self.function[..]);
        tables as u64 + self.samples.memory() + self.strings.memory()
    }

    /// Returns the text with the id `id`.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id)
    }

    /// Returns the lines of a location, innermost inlined function first. A location without
    /// symbols has none.
    pub fn lines(&self, location: &Location) -> &[Line] {
        &self.line[location.line.start as usize..location.line.end as usize]
    }

    /// Returns the names of all functions, sorted, each once.
    pub fn function_names(&self) -> Vec<&str> {
        let functions = self.function.iter();
        let mut names: Vec<&str> = functions.map(|function| self.text(function.name)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the file name of a location's mapping, without folders and without square brackets
    /// around it.
    pub fn binary_name(&self, location: &Location) -> Option<&str> {
        let mapping = &self.mapping[location.mapping?.index()];
        let path = self.text(mapping.filename);
        let name = path.rsplit('/').next().unwrap_or(path);
        (!name.is_empty()).then_some(name.trim_matches(['[', ']']))
    }

    /// Returns a name for a location without symbols: address and file, e.g. `0x401000 [app]`.
    pub fn address_name(&self, location: &Location) -> String {
        match (location.address, self.binary_name(location)) {
            (0, None) => "<unknown>".to_string(),
            (0, Some(binary)) => format!("[{binary}]"),
            (address, None) => format!("{address:#x}"),
            (address, Some(binary)) => format!("{address:#x} [{binary}]"),
        }
    }

    /// Whether a function has only a substitute for a name: its file and its position in that file,
    /// e.g. `libfoo.so+0x1234`.
    pub fn is_nameless(&self, function: &Function) -> bool {
        let named = !function.system_name.is_empty() || !function.filename.is_empty();
        !named && is_place_of_code(self.text(function.name))
    }

    /// Whether only the address of a location is known: the location has no lines, or only lines of
    /// [nameless](Self::is_nameless) functions.
    pub fn is_unnamed(&self, location: &Location) -> bool {
        let mut lines = self.lines(location).iter();
        lines.all(|line| self.is_nameless(&self.function[line.function.index()]))
    }

    /// Sets the flags of each mapping for which `which` returns true. The flags show whether any
    /// location of the mapping has a function, a source file, a line number, or inlined functions.
    /// No flag is cleared.
    pub fn mark_symbolized(&mut self, which: impl Fn(MappingIndex) -> bool) {
        let nameless: Vec<bool> = self.function.iter().map(|f| self.is_nameless(f)).collect();
        for location in &self.location {
            let Some(mapping) = location.mapping.filter(|&mapping| which(mapping)) else {
                continue;
            };
            let mapping = &mut self.mapping[mapping.index()];
            let lines = &self.line[location.line.start as usize..location.line.end as usize];
            for line in lines {
                if nameless[line.function.index()] {
                    continue;
                }
                let function = &self.function[line.function.index()];
                mapping.has_functions |= !function.name.is_empty();
                mapping.has_filenames |= !function.filename.is_empty();
                mapping.has_line_numbers |= line.line != 0;
            }
            mapping.has_inline_frames |= lines.len() > 1;
        }
    }
}

/// Whether a name consists of a file and a position in it, e.g. `libfoo.so+0x1234`. Functions
/// without a name get such a name.
pub fn is_place_of_code(name: &str) -> bool {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    name.split_once("+0x")
        .is_some_and(|(file, at)| !file.is_empty() && !at.is_empty() && at.bytes().all(is_hex))
}
