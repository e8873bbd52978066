//! Encodes a [`Profile`] as a file, field by field: equal profiles give equal bytes. Samples and
//! locations, which are nearly all of a file, go straight into the output buffer.
//!
//! Messages and texts come in the order in which pprof writes them, and numbers are packed as pprof
//! packs them, so that the outputs of pprof and heapprof can be compared. The source is
//! google/pprof, profile/encode.go.

mod options;
mod quick_sample;
mod stack;

use std::io::{self, Write};
use std::ops::Range;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};

use crate::builder::ProfileBuilder;
use crate::decode::{SAMPLED_FIELD, VARIANCE_FIELD};
use crate::error::Error;
use crate::model::spread::SampleSpread;
use crate::model::{Label, LabelSetIndex, Location, Profile, ValueType};
use crate::pack::{BLOCK_SIZE, GzipPacker};
use crate::strings::StringId;
use crate::varint::{fields, fields_len, message, varint, varint_len};
pub use options::{EncodeOptions, Gzip};
pub use quick_sample::QuickSample;
use stack::{EncodedIds, PackedStack};

/// Writes `profile` gzipped, without time or name in the gzip header. Equal profiles become equal
/// bytes.
///
/// ```
/// use heapprof_profile::{ProfileBuilder, encode};
/// let file = |bytes| {
///     let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
///     builder.add_folded("main;parse", &[bytes]);
///     let mut file = Vec::new();
///     encode(&builder.finish(), &mut file).map(|()| file)
/// };
/// assert!(file(96)?.starts_with(b"\x1f\x8b"));
/// assert_eq!(file(96)?, file(96)?);
/// assert_ne!(file(96)?, file(97)?);
/// # Ok::<(), heapprof_profile::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::Write`] when `writer` fails.
pub fn encode(profile: &Profile, writer: impl Write) -> Result<(), Error> {
    encode_with(profile, writer, EncodeOptions::default())
}

/// Writes `profile` with the given options.
///
/// # Errors
/// Returns [`Error::Write`] when `writer` fails.
pub fn encode_with(
    profile: &Profile,
    writer: impl Write,
    options: EncodeOptions,
) -> Result<(), Error> {
    let finished = match options.gzip {
        Gzip::Full => {
            let mut gzip: GzEncoder<_> = GzBuilder::new().write(writer, Compression::default());
            encode_in_parts(profile, &mut gzip, FLUSH_SIZE)?;
            gzip.finish()
        }
        Gzip::Loose => {
            let mut packer = GzipPacker::new(writer).map_err(Error::Write)?;
            encode_in_parts(profile, &mut packer, BLOCK_SIZE)?;
            packer.finish()
        }
        Gzip::None => return encode_in_parts(profile, writer, FLUSH_SIZE),
    };
    let flushed = finished.and_then(|mut writer| writer.flush());
    flushed.map_err(Error::Write)
}

/// Writes a profile whose samples are made one by one and are not stored. Gzip works at its fastest
/// level. Otherwise, this function works as [`encode`] does.
///
/// `next` fills in the next sample, and adds the new locations of this sample to the builder. It
/// returns the number of frames, from the root on, that this sample shares with the previous one,
/// or `None` when there is no sample left.
///
/// # For whom
/// This is for collectors inside a program, which should take little of the program's time. Other
/// callers have a [`Profile`] and use [`encode`].
///
/// # Errors
/// Returns [`Error::Write`] when `writer` fails.
pub fn encode_samples_quickly(
    mut builder: ProfileBuilder,
    mut next: impl FnMut(&mut ProfileBuilder, &mut QuickSample) -> Option<usize>,
    writer: impl Write,
) -> Result<(), Error> {
    let gzip = GzBuilder::new().write(writer, Compression::fast());
    let mut sample = QuickSample::new(builder.profile.sample_type.len());
    let mut stack = PackedStack::default();
    let write = || {
        let mut encoder = ProfileEncoder::new(gzip, FLUSH_SIZE);
        encoder.sample_types(&builder.profile)?;
        while let Some(shared) = next(&mut builder, &mut sample) {
            encoder.know_ids(&builder.profile);
            stack.go_on(shared, &sample.newer, &encoder.ids);
            let values = (&sample.values[..], Some(sample.spread()));
            let labels = encoder.labels(&builder.profile, sample.labels);
            encoder.sample(stack.frames(), stack.packed(), values, labels)?;
            sample.clear();
        }
        encoder.tables(&builder.profile)?.finish()?.flush()
    };
    write().map_err(Error::Write)
}

/// Writes `profile` without gzip. Each write except the last has at least `part` bytes.
fn encode_in_parts(profile: &Profile, writer: impl Write, part: usize) -> Result<(), Error> {
    let mut encoder = ProfileEncoder::new(writer, part);
    let samples = &profile.samples;
    let write = || {
        encoder.sample_types(profile)?;
        let written = samples.stacks.bytes_for(&profile.location);
        if written.is_none() {
            encoder.know_ids(profile);
        }
        let mut stack = PackedStack::default();
        for i in 0..samples.len() {
            let labels = encoder.labels(profile, samples.label_set(i));
            let packed = match written {
                Some(written) => written.get(i),
                None => {
                    stack.set(samples.stack(i), &encoder.ids);
                    stack.packed()
                }
            };
            let frames = samples.stacks.frames_of(i);
            let values = (samples.values(i), samples.spread(i));
            encoder.sample(frames, packed, values, labels)?;
        }
        encoder.tables(profile)?.flush()
    };
    write().map_err(Error::Write)
}

/// Minimum size in bytes of each write except the last.
const FLUSH_SIZE: usize = 64 << 10;

/// Encodes a profile in steps: sample types, samples, and the other tables.
struct ProfileEncoder<W> {
    writer: W,
    buf: Vec<u8>,
    /// Minimum size in bytes of each write except the last.
    part: usize,
    /// Packed values of the sample that is being written.
    packed: Vec<u8>,
    /// The position of each text in the file's string table.
    index: Vec<Option<i64>>,
    texts: Vec<StringId>,
    /// Encoded labels of all sets that were used so far. `label_sets` holds the range of each set
    /// in these bytes.
    labels: Vec<u8>,
    label_sets: Vec<Option<Range<usize>>>,
    /// Encoded ids of the locations that were added so far.
    ids: EncodedIds,
}

impl<W: Write> ProfileEncoder<W> {
    fn new(writer: W, part: usize) -> Self {
        let mut encoder = Self {
            writer,
            buf: Vec::with_capacity(part + part / 4),
            part,
            packed: Vec::new(),
            index: Vec::new(),
            texts: Vec::new(),
            labels: Vec::new(),
            label_sets: Vec::new(),
            ids: EncodedIds::default(),
        };
        encoder.text(StringId::EMPTY);
        encoder
    }

    /// Returns the index of a text in the file's string table. The index is chosen when the text is
    /// first used.
    fn text(&mut self, id: StringId) -> i64 {
        if id.index() >= self.index.len() {
            self.index.resize(id.index() + 1, None);
        }
        *self.index[id.index()].get_or_insert_with(|| {
            self.texts.push(id);
            self.texts.len() as i64 - 1
        })
    }

    /// Writes the collected bytes, if they are at least `part` bytes.
    fn flush(&mut self) -> io::Result<()> {
        if self.buf.len() >= self.part {
            self.writer.write_all(&self.buf)?;
            self.buf.clear();
        }
        Ok(())
    }

    fn value_type(&mut self, value_type: ValueType) -> [(u8, u64); 2] {
        let texts = [value_type.r#type, value_type.unit].map(|text| self.text(text) as u64);
        [(1, texts[0]), (2, texts[1])]
    }

    fn sample_types(&mut self, profile: &Profile) -> io::Result<()> {
        for &value_type in &profile.sample_type {
            let numbers = self.value_type(value_type);
            message(&mut self.buf, 1, &numbers);
            self.flush()?;
        }
        Ok(())
    }

    /// Encodes the ids of the locations that are new in `profile`.
    fn know_ids(&mut self, profile: &Profile) {
        let new = &profile.location[self.ids.len()..];
        new.iter().for_each(|location| self.ids.push(location.id));
    }

    /// Returns the range in `self.labels` with the encoded labels of a set. The labels are encoded
    /// if they are new.
    fn labels(&mut self, profile: &Profile, set: LabelSetIndex) -> Range<usize> {
        if let Some(Some(known)) = self.label_sets.get(set.index()) {
            return known.clone();
        }
        let mut encoded = std::mem::take(&mut self.labels);
        let begin = encoded.len();
        for label in profile.label_sets.get(set) {
            let numbers = self.label(label);
            message(&mut encoded, 3, &numbers);
        }
        let range = begin..encoded.len();
        self.labels = encoded;
        let sets = self.label_sets.len().max(set.index() + 1);
        self.label_sets.resize(sets, None);
        self.label_sets[set.index()] = Some(range.clone());
        range
    }

    /// Writes a sample of `frames` frames. `stack` holds their packed ids, and `labels` is the
    /// range of the sample's labels in `self.labels`.
    fn sample(
        &mut self,
        frames: usize,
        stack: &[u8],
        (values, spread): (&[i64], Option<SampleSpread<'_>>),
        labels: Range<usize>,
    ) -> io::Result<()> {
        // The spread of exact values is not written.
        let spread = spread.filter(|spread| !spread.is_exact());
        let packed = &mut self.packed;
        packed.clear();
        values.iter().for_each(|&v| varint(packed, v as u64));
        let labels = &self.labels[labels];
        let mut length =
            numbers_len(frames, stack) + numbers_len(values.len(), packed) + labels.len();
        if let Some(spread) = spread {
            length += spread_len(spread);
        }
        self.buf.push(2 << 3 | 2);
        varint(&mut self.buf, length as u64);
        numbers(&mut self.buf, 1, frames, stack);
        numbers(&mut self.buf, 2, values.len(), packed);
        self.buf.extend_from_slice(labels);
        if let Some(spread) = spread {
            add_spread(&mut self.buf, spread);
        }
        self.flush()
    }

    /// Writes all tables that follow the samples, and returns the writer.
    fn tables(mut self, profile: &Profile) -> io::Result<W> {
        for mapping in &profile.mapping {
            let numbers = [
                (1, mapping.id),
                (2, mapping.memory_start),
                (3, mapping.memory_limit),
                (4, mapping.file_offset),
                (5, self.text(mapping.filename) as u64),
                (6, self.text(mapping.build_id) as u64),
                (7, mapping.has_functions.into()),
                (8, mapping.has_filenames.into()),
                (9, mapping.has_line_numbers.into()),
                (10, mapping.has_inline_frames.into()),
            ];
            message(&mut self.buf, 3, &numbers);
            self.flush()?;
        }
        for location in &profile.location {
            self.location(profile, location)?;
        }
        for function in &profile.function {
            let numbers = [
                (1, function.id),
                (2, self.text(function.name) as u64),
                (3, self.text(function.system_name) as u64),
                (4, self.text(function.filename) as u64),
                (5, function.start_line as u64),
            ];
            message(&mut self.buf, 5, &numbers);
            self.flush()?;
        }
        self.header(profile)
    }

    /// Writes a location, which contains its lines.
    fn location(&mut self, profile: &Profile, location: &Location) -> io::Result<()> {
        let mapping = location.mapping.map(|m| &profile.mapping[m.index()]);
        let before = [
            (1, location.id),
            (2, mapping.map_or(0, |mapping| mapping.id)),
            (3, location.address),
        ];
        let after = [(5, u64::from(location.is_folded))];
        let lines = profile.lines(location).iter().map(|line| {
            let function = &profile.function[line.function.index()];
            [
                (1, function.id),
                (2, line.line as u64),
                (3, line.column as u64),
            ]
        });
        let of_lines = lines.clone().map(|line| {
            let length = fields_len(&line);
            1 + varint_len(length as u64) + length
        });
        let length = fields_len(&before) + of_lines.sum::<usize>() + fields_len(&after);
        let buf = &mut self.buf;
        buf.push(4 << 3 | 2);
        varint(buf, length as u64);
        fields(buf, &before);
        for line in lines {
            buf.push(4 << 3 | 2);
            varint(buf, fields_len(&line) as u64);
            fields(buf, &line);
        }
        fields(buf, &after);
        self.flush()
    }

    fn label(&mut self, label: &Label) -> [(u8, u64); 4] {
        [
            (1, self.text(label.key) as u64),
            (2, self.text(label.str) as u64),
            (3, label.num as u64),
            (4, self.text(label.num_unit) as u64),
        ]
    }

    /// Writes the end of the file: the string table, and then the header fields. Texts of the
    /// header are added to the table before it is written.
    fn header(mut self, profile: &Profile) -> io::Result<W> {
        let drop_frames = self.text(profile.drop_frames);
        let keep_frames = self.text(profile.keep_frames);
        let period_type = profile.period_type.map(|t| self.value_type(t));
        let comments: Vec<i64> = profile.comment.iter().map(|&c| self.text(c)).collect();
        let default_sample_type = self.text(profile.default_sample_type);
        let doc_url = self.text(profile.doc_url);
        for at in 0..self.texts.len() {
            let text = profile.text(self.texts[at]);
            self.buf.push(6 << 3 | 2);
            varint(&mut self.buf, text.len() as u64);
            self.buf.extend_from_slice(text.as_bytes());
            self.flush()?;
        }
        let buf = &mut self.buf;
        fields(
            buf,
            &[
                (7, drop_frames as u64),
                (8, keep_frames as u64),
                (9, profile.time_nanos as u64),
                (10, profile.duration_nanos as u64),
            ],
        );
        if let Some(period_type) = period_type.filter(|t| t.iter().any(|&(_, text)| text != 0)) {
            message(buf, 11, &period_type);
        }
        fields(buf, &[(12, profile.period as u64)]);
        let mut packed = Vec::new();
        let comments = comments.iter().map(|&c| c as u64);
        comments
            .clone()
            .for_each(|comment| varint(&mut packed, comment));
        numbers(buf, 13, comments.len(), &packed);
        // This field is written even if it is empty, as pprof does.
        buf.push(14 << 3);
        varint(buf, default_sample_type as u64);
        fields(buf, &[(15, doc_url as u64)]);
        self.writer.write_all(&self.buf)?;
        Ok(self.writer)
    }
}

/// Returns the lengths, in bytes, of the packed counts and the packed variances of a spread.
fn packed_spread_len(spread: SampleSpread<'_>) -> [usize; 2] {
    let sampled = spread.sampled.iter().map(|&n| varint_len(n)).sum();
    [sampled, size_of_val(spread.variance)]
}

/// Returns how many bytes the fields of a spread take.
fn spread_len(spread: SampleSpread<'_>) -> usize {
    // Each tag takes two bytes.
    let lengths = packed_spread_len(spread).into_iter();
    lengths
        .map(|length| 2 + varint_len(length as u64) + length)
        .sum()
}

/// Adds the fields of a spread, always packed.
fn add_spread(out: &mut Vec<u8>, spread: SampleSpread<'_>) {
    let [sampled, variance] = packed_spread_len(spread);
    varint(out, u64::from(SAMPLED_FIELD << 3 | 2));
    varint(out, sampled as u64);
    spread.sampled.iter().for_each(|&n| varint(out, n));
    varint(out, u64::from(VARIANCE_FIELD << 3 | 2));
    varint(out, variance as u64);
    let words = spread.variance.iter().flat_map(|v| v.to_le_bytes());
    out.extend(words);
}

/// Whether pprof packs `count` numbers. It does so only if packing saves bytes.
fn is_packed(count: usize) -> bool {
    count > 2
}

/// Returns how many bytes a field of `count` numbers takes.
fn numbers_len(count: usize, packed: &[u8]) -> usize {
    if is_packed(count) {
        1 + varint_len(packed.len() as u64) + packed.len()
    } else {
        count + packed.len()
    }
}

/// Adds a field of `count` numbers, whose packed form is `packed`.
fn numbers(out: &mut Vec<u8>, field: u8, count: usize, packed: &[u8]) {
    if is_packed(count) {
        out.push(field << 3 | 2);
        varint(out, packed.len() as u64);
        out.extend_from_slice(packed);
        return;
    }
    let mut begins = true;
    for &byte in packed {
        if begins {
            out.push(field << 3);
        }
        out.push(byte);
        begins = byte < 0x80;
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::model::Mapping;
    use crate::proto;

    /// Checks that prost reads a file in which every field occurs, and writes the same bytes. The
    /// file has at least three numbers in each list, because pprof does not pack fewer.
    #[test]
    fn files_are_as_prost_writes_them() {
        let types = [("a", "count"), ("b", "bytes"), ("c", "seconds")];
        let mut builder = ProfileBuilder::new(&types);
        builder.add_folded("main;middle;inner", &[1, -2, i64::MIN]);
        let mut labels = [
            builder.number_label("size", -5, "kb"),
            builder.text_label("thread", "7"),
        ];
        let values = [0, 300, i64::MAX];
        builder.add_folded_with_labels("main;middle;other;inner", &values, &mut labels);
        let profile = &mut builder.profile;
        let mut text = |text: &str| profile.strings.intern(text);
        let (one, two, empty) = (text("one"), text("zwei \u{e4}"), StringId::EMPTY);
        profile.mapping = vec![
            Mapping::default(),
            Mapping {
                id: 300,
                memory_start: 1 << 63,
                memory_limit: u64::MAX,
                file_offset: 1,
                filename: one,
                build_id: two,
                has_functions: true,
                has_filenames: false,
                has_line_numbers: true,
                has_inline_frames: true,
            },
        ];
        profile.mapping[0].id = 1;
        profile.function[0].start_line = -7;
        profile.function[0].system_name = two;
        profile.function[1].filename = one;
        (profile.drop_frames, profile.keep_frames) = (one, two);
        (profile.time_nanos, profile.duration_nanos) = (-1, 1 << 60);
        profile.period_type = Some(ValueType {
            r#type: one,
            unit: empty,
        });
        profile.period = 512 << 10;
        profile.comment = vec![one, empty, two];
        (profile.default_sample_type, profile.doc_url) = (two, one);
        let mut ours = Vec::new();
        encode_in_parts(profile, &mut ours, FLUSH_SIZE).unwrap();
        let message = proto::Profile::decode(&ours[..]).unwrap();
        assert_eq!(message.comment.len(), 3);
        assert_eq!(message.encode_to_vec(), ours);
    }

    /// Checks that this encoder and prost write locations with the same bytes.
    #[test]
    fn locations_are_as_prost_writes_them() {
        let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
        builder.add_folded("main;inner", &[1]);
        let mut profile = builder.finish();
        let line = profile.line[0];
        let lines = [
            line,
            crate::Line {
                line: -1,
                column: -2,
                ..line
            },
            crate::Line {
                line: 0,
                column: 300,
                ..line
            },
        ];
        profile.function[line.function.index()].id = 1 << 40;
        profile.line = lines.to_vec();
        let mapping = profile.mapping.first().map(|_| crate::MappingIndex(0));
        for (id, address, mapping, line, is_folded) in [
            (1, 0, None, 0..0, false),
            (200, 0x7fff_ffff_f000, mapping, 0..3, true),
            (u64::MAX, u64::MAX, mapping, 1..2, false),
        ] {
            let location = Location {
                id,
                mapping,
                address,
                line,
                is_folded,
            };
            let of_line = |line: &crate::Line| proto::Line {
                function_id: profile.function[line.function.index()].id,
                line: line.line,
                column: line.column,
            };
            let message = proto::Location {
                id,
                mapping_id: mapping.map_or(0, |m| profile.mapping[m.index()].id),
                address,
                line: profile.lines(&location).iter().map(of_line).collect(),
                is_folded,
            };
            let mut theirs = Vec::new();
            prost::encoding::message::encode(4, &message, &mut theirs);
            let mut ours = ProfileEncoder::new(Vec::new(), FLUSH_SIZE);
            ours.location(&profile, &location).unwrap();
            assert_eq!(ours.buf, theirs, "{location:?}");
        }
    }
}
