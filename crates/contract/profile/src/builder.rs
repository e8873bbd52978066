//! Makes profiles piece by piece, and stores each mapping, function and location once. Importers,
//! merging and tests use the builder.

use crate::hashing::HashMap;

use crate::model::{
    Function, FunctionIndex, Label, LabelSetIndex, Line, Location, LocationIndex, Mapping,
    MappingIndex, Profile, Samples, ValueType,
};
use crate::strings::StringId;

/// The texts and line numbers of a frame, from which [`ProfileBuilder::frame`] makes a location.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameText<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Source file; may be empty.
    pub filename: &'a str,
    /// Line number; 0 when unknown.
    pub line: i64,
    /// Line at which the function begins; 0 when unknown.
    pub start_line: i64,
}

type LocationKey = (Option<MappingIndex>, u64, bool, Box<[Line]>);

/// Builds a [`Profile`].
///
/// ```
/// use heapprof_profile::{FrameText, Mapping, ProfileBuilder};
/// let mut builder = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
/// let main = FrameText { name: "main", filename: "main.c", line: 12, ..FrameText::default() };
/// let main = builder.frame(&[main]);
/// let filename = builder.text("/usr/lib/libz.so.1");
/// let library = builder.mapping(Mapping {
///     memory_start: 0x7f00_0000_0000,
///     memory_limit: 0x7f00_0002_0000,
///     filename,
///     ..Mapping::default()
/// });
/// let call = builder.location(Some(library), 0x7f00_0000_1234, false, &[]);
/// let mut labels = [builder.text_label("thread", "main")];
/// let labels = builder.label_set(&mut labels);
/// // A stack begins with its leaf.
/// builder.profile.samples.push([call, main], &[1, 64], labels);
/// // The folded way begins with the root. The frame is the same one.
/// builder.add_folded("main@main.c:12", &[2, 32]);
///
/// let profile = builder.finish();
/// assert_eq!(profile.samples.stack(1), [main]);
/// assert_eq!(profile.address_name(&profile.location[call.index()]), "0x7f0000001234 [libz.so.1]");
/// ```
#[derive(Default)]
pub struct ProfileBuilder {
    /// The profile that is being built. Callers may set its header directly, but must add to its
    /// tables through the builder.
    pub profile: Profile,
    mapping_index: HashMap<Mapping, MappingIndex>,
    function_index: HashMap<Function, FunctionIndex>,
    location_index: HashMap<LocationKey, LocationIndex>,
}

impl ProfileBuilder {
    /// Makes an empty profile. Each sample type is a pair of its name and its unit.
    pub fn new(sample_types: &[(&str, &str)]) -> Self {
        let mut builder = Self {
            profile: Profile::default(),
            mapping_index: HashMap::default(),
            function_index: HashMap::default(),
            location_index: HashMap::default(),
        };
        for (r#type, unit) in sample_types {
            let value_type = builder.value_type(r#type, unit);
            builder.profile.sample_type.push(value_type);
        }
        builder.profile.samples = Samples::new(sample_types.len());
        builder
    }

    /// Returns the finished profile.
    pub fn finish(self) -> Profile {
        self.profile
    }

    /// Returns the id of a text, which is added if it is new.
    pub fn text(&mut self, text: &str) -> StringId {
        self.profile.strings.intern(text)
    }

    /// Makes a value type from the names of a type and its unit.
    pub fn value_type(&mut self, r#type: &str, unit: &str) -> ValueType {
        ValueType {
            r#type: self.text(r#type),
            unit: self.text(unit),
        }
    }

    /// Returns the index of a mapping, which is added if it is new. This function chooses the
    /// mapping's `id`.
    pub fn mapping(&mut self, mapping: Mapping) -> MappingIndex {
        let key = Mapping { id: 0, ..mapping };
        let table = &mut self.profile.mapping;
        *self.mapping_index.entry(key).or_insert_with(|| {
            let id = table.len() as u64 + 1;
            table.push(Mapping { id, ..mapping });
            MappingIndex(id as u32 - 1)
        })
    }

    /// Returns the index of a function, which is added if it is new. This function chooses the
    /// function's `id`.
    pub fn function(&mut self, function: Function) -> FunctionIndex {
        let key = Function { id: 0, ..function };
        let table = &mut self.profile.function;
        *self.function_index.entry(key).or_insert_with(|| {
            let id = table.len() as u64 + 1;
            table.push(Function { id, ..function });
            FunctionIndex(id as u32 - 1)
        })
    }

    /// Returns the index of a function that has only a name, and a source file if `filename` is not
    /// empty. The function is added if it is new.
    pub fn named_function(&mut self, name: StringId, filename: StringId) -> FunctionIndex {
        self.function(Function {
            name,
            system_name: name,
            filename,
            ..Function::default()
        })
    }

    /// Returns the index of a location with its lines, innermost inlined function first. The
    /// location is added if it is new.
    pub fn location(
        &mut self,
        mapping: Option<MappingIndex>,
        address: u64,
        is_folded: bool,
        lines: &[Line],
    ) -> LocationIndex {
        self.location_by(lines.into(), mapping, address, is_folded, lines)
    }

    /// Returns the index of the location with this `key`, mapping, address and `is_folded`. If
    /// there is none yet, a location with `lines` is added.
    pub(crate) fn location_by(
        &mut self,
        key: Box<[Line]>,
        mapping: Option<MappingIndex>,
        address: u64,
        is_folded: bool,
        lines: &[Line],
    ) -> LocationIndex {
        let key = (mapping, address, is_folded, key);
        let profile = &mut self.profile;
        *self.location_index.entry(key).or_insert_with(|| {
            let start = profile.line.len() as u32;
            profile.line.extend_from_slice(lines);
            let id = profile.location.len() as u64 + 1;
            profile.location.push(Location {
                id,
                mapping,
                address,
                line: start..profile.line.len() as u32,
                is_folded,
            });
            LocationIndex(id as u32 - 1)
        })
    }

    /// Returns the index of a set of labels, which is added if it is new.
    pub fn label_set(&mut self, labels: &mut [Label]) -> LabelSetIndex {
        let Profile {
            label_sets,
            strings,
            ..
        } = &mut self.profile;
        label_sets.intern(labels, strings)
    }

    /// Makes a number label, e.g. `("bytes", 16, "bytes")`.
    pub fn number_label(&mut self, key: &str, num: i64, num_unit: &str) -> Label {
        Label {
            key: self.text(key),
            num,
            num_unit: self.text(num_unit),
            ..Label::default()
        }
    }

    /// Makes a text label, e.g. `("thread", "main")`.
    pub fn text_label(&mut self, key: &str, text: &str) -> Label {
        Label {
            key: self.text(key),
            str: self.text(text),
            ..Label::default()
        }
    }

    /// Returns a symbolized location for these frames, innermost inlined frame first.
    pub fn frame(&mut self, frames: &[FrameText<'_>]) -> LocationIndex {
        let lines: Vec<Line> = frames
            .iter()
            .map(|frame| {
                let (name, filename) = (self.text(frame.name), self.text(frame.filename));
                Line {
                    function: self.function(Function {
                        name,
                        system_name: name,
                        filename,
                        start_line: frame.start_line,
                        ..Function::default()
                    }),
                    line: frame.line,
                    column: 0,
                }
            })
            .collect();
        // The address is computed from the texts, so equal lines are the same place in every
        // profile.
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for frame in frames {
            let line = frame.line.to_string();
            for byte in [frame.name, "@", frame.filename, ":", &line, ";"]
                .concat()
                .bytes()
            {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        let address = 0x40_0000 + 16 * (hash % (1 << 28));
        self.location(None, address, false, &lines)
    }

    /// Adds a sample that is written in folded form, root first: `main;parse@parse.c:12;alloc`.
    ///
    /// A frame is `name`, `name@file` or `name@file:line`. `outer>>inner` is one location in which
    /// `inner` was inlined into `outer`. `0x1f` is an address without symbols, and `0x1f@/bin/app`
    /// is an address without symbols in a mapping.
    pub fn add_folded(&mut self, stack: &str, values: &[i64]) {
        self.add_folded_with_labels(stack, values, &mut []);
    }

    /// Adds a sample in the form that [`add_folded`](Self::add_folded) reads, with labels.
    pub fn add_folded_with_labels(&mut self, stack: &str, values: &[i64], labels: &mut [Label]) {
        let frames: Vec<&str> = stack.split(';').filter(|f| !f.is_empty()).collect();
        let stack: Vec<LocationIndex> = frames.iter().rev().map(|f| self.parse(f)).collect();
        let label_set = self.label_set(labels);
        self.profile.samples.push(stack, values, label_set);
    }

    /// Adds a sample whose frames are plain function names, root first.
    pub fn add_named(&mut self, stack: &[&str], values: &[i64], labels: &mut [Label]) {
        let frames = stack.iter().rev();
        let locations: Vec<LocationIndex> = frames.map(|name| self.name(name)).collect();
        self.add_sample(locations, values, labels);
    }

    /// Returns a symbolized location that has only a function name.
    pub fn name(&mut self, name: &str) -> LocationIndex {
        self.frame(&[FrameText {
            name,
            filename: "",
            start_line: 0,
            line: 0,
        }])
    }

    /// Adds a sample with this stack, leaf first.
    pub fn add_sample(&mut self, stack: Vec<LocationIndex>, values: &[i64], labels: &mut [Label]) {
        let label_set = self.label_set(labels);
        self.profile.samples.push(stack, values, label_set);
    }

    fn parse(&mut self, frame: &str) -> LocationIndex {
        let split = |text| -> (&str, &str) { str::split_once(text, '@').unwrap_or((text, "")) };
        let hex = |name: &str| u64::from_str_radix(name.strip_prefix("0x")?, 16).ok();
        if let (name, filename) = split(frame)
            && let Some(address) = hex(name)
        {
            let mapping = (!filename.is_empty()).then(|| {
                let filename = self.text(filename);
                self.mapping(Mapping {
                    memory_limit: 1 << 40,
                    filename,
                    ..Mapping::default()
                })
            });
            return self.location(mapping, address, false, &[]);
        }
        let texts: Vec<FrameText<'_>> = frame
            .rsplit(">>")
            .map(|part| {
                let (name, place) = split(part);
                let (filename, line) = place.rsplit_once(':').unwrap_or((place, "0"));
                FrameText {
                    name,
                    filename,
                    line: line.parse().unwrap_or(0),
                    start_line: 0,
                }
            })
            .collect();
        self.frame(&texts)
    }
}
