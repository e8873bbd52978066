//! From a [`Profile`] to a file, field by field through prost: equal profiles give equal bytes.
//!
//! Messages, text and packing come in the order pprof writes them (facts from google/pprof's
//! profile/encode.go), so that its output and ours can be compared.

use std::io::{self, Write};
use std::rc::Rc;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use foldhash::{HashMap, HashMapExt};
use prost::Message;
use prost::encoding::{int64, string};

use crate::builder::ProfileBuilder;
use crate::error::Error;
use crate::model::{Label, LabelSetIndex, Location, LocationIndex, Profile, ValueType};
use crate::pack::Packer;
use crate::proto;
use crate::strings::StringId;

/// Writes `profile` gzipped, without time or name in the gzip header.
pub fn encode(profile: &Profile, writer: impl Write) -> Result<(), Error> {
    let mut gzip: GzEncoder<_> = GzBuilder::new().write(writer, Compression::default());
    encode_plain(profile, &mut gzip)?;
    let finished = gzip.finish().and_then(|mut writer| writer.flush());
    finished.map_err(Error::Write)
}

/// As [`encode`], but what gzip does not halve is stored as it is: for tools whose users wait.
pub fn encode_loosely(profile: &Profile, writer: impl Write) -> Result<(), Error> {
    let mut packer = Packer::new(writer).map_err(Error::Write)?;
    encode_plain(profile, &mut packer)?;
    let finished = packer.finish().and_then(|mut writer| writer.flush());
    finished.map_err(Error::Write)
}

/// As [`encode`], but with samples that are made one by one and not kept, and gzipped as quickly as may be: for writers
/// inside a program that has other things to do.
///
/// `next` tells how many of the last sample's oldest frames the next one goes on from, puts the newer ones (leaf first) into
/// the empty vector and its values into the slice, with what locations it needs into the builder; `None` when there is none
/// left. Samples have no labels.
pub fn encode_samples_quickly(
    mut builder: ProfileBuilder,
    mut next: impl FnMut(&mut ProfileBuilder, &mut Vec<LocationIndex>, &mut [i64]) -> Option<usize>,
    writer: impl Write,
) -> Result<(), Error> {
    let gzip = GzBuilder::new().write(writer, Compression::fast());
    let mut values = vec![0; builder.profile.sample_type.len()];
    let (mut newer, mut stack) = (Vec::new(), PackedStack::default());
    let write = || {
        let mut encoder = Encoder::new(gzip);
        encoder.sample_types(&builder.profile)?;
        while let Some(shared) = next(&mut builder, &mut newer, &mut values) {
            encoder.know_ids(&builder.profile);
            stack.go_on(shared, &newer, &encoder.ids);
            encoder.sample(&stack, &values, &[])?;
            newer.clear();
        }
        encoder.tables(&builder.profile)?.finish()?.flush()
    };
    write().map_err(Error::Write)
}

/// Writes `profile` without gzip.
pub fn encode_plain(profile: &Profile, writer: impl Write) -> Result<(), Error> {
    let mut encoder = Encoder::new(writer);
    let samples = &profile.samples;
    let write = || {
        encoder.sample_types(profile)?;
        encoder.know_ids(profile);
        let mut stack = PackedStack::default();
        for i in 0..samples.len() {
            stack.set(samples.stack(i), &encoder.ids);
            let labels = encoder.labels(profile, samples.label_set(i));
            encoder.sample(&stack, samples.values(i), &labels)?;
        }
        encoder.tables(profile)?.flush()
    };
    write().map_err(Error::Write)
}

const FLUSH: usize = 64 << 10;

/// Writes a file in its order: sample types, samples, and the other tables.
struct Encoder<W> {
    writer: W,
    buf: Vec<u8>,
    /// A sample's packed values.
    packed: Vec<u8>,
    /// Where each text went in the file's string table.
    index: Vec<Option<i64>>,
    texts: Vec<StringId>,
    /// The labels of each set as they are written.
    label_sets: HashMap<u32, Rc<[u8]>>,
    /// The ids of all locations so far.
    ids: Vec<Varint>,
}

impl<W: Write> Encoder<W> {
    fn new(writer: W) -> Self {
        let mut encoder = Self {
            writer,
            buf: Vec::with_capacity(2 * FLUSH),
            packed: Vec::new(),
            index: Vec::new(),
            texts: Vec::new(),
            label_sets: HashMap::new(),
            ids: Vec::new(),
        };
        encoder.text(StringId::EMPTY);
        encoder
    }

    /// The number of a text in the file, given at first use.
    fn text(&mut self, id: StringId) -> i64 {
        if id.index() >= self.index.len() {
            self.index.resize(id.index() + 1, None);
        }
        *self.index[id.index()].get_or_insert_with(|| {
            self.texts.push(id);
            self.texts.len() as i64 - 1
        })
    }

    fn message(&mut self, field: u32, message: &impl Message) -> io::Result<()> {
        prost::encoding::message::encode(field, message, &mut self.buf);
        self.flush(FLUSH)
    }

    fn flush(&mut self, at: usize) -> io::Result<()> {
        if self.buf.len() >= at {
            self.writer.write_all(&self.buf)?;
            self.buf.clear();
        }
        Ok(())
    }

    fn value_type(&mut self, value_type: ValueType) -> proto::ValueType {
        proto::ValueType {
            r#type: self.text(value_type.r#type),
            unit: self.text(value_type.unit),
        }
    }

    fn sample_types(&mut self, profile: &Profile) -> io::Result<()> {
        for &value_type in &profile.sample_type {
            let message = self.value_type(value_type);
            self.message(1, &message)?;
        }
        Ok(())
    }

    /// Takes over the ids of locations that are new.
    fn know_ids(&mut self, profile: &Profile) {
        let new = &profile.location[self.ids.len()..];
        self.ids.extend(new.iter().map(|l| Varint::new(l.id)));
    }

    /// The labels of a set as they are written.
    fn labels(&mut self, profile: &Profile, set: LabelSetIndex) -> Rc<[u8]> {
        if let Some(known) = self.label_sets.get(&set.0) {
            return known.clone();
        }
        let mut encoded = Vec::new();
        for label in profile.label_sets.get(set) {
            let message = self.label(label);
            prost::encoding::message::encode(3, &message, &mut encoded);
        }
        let encoded: Rc<[u8]> = encoded.into();
        self.label_sets.insert(set.0, encoded.clone());
        encoded
    }

    /// A sample; its labels are written already.
    fn sample(&mut self, stack: &PackedStack, values: &[i64], labels: &[u8]) -> io::Result<()> {
        let packed = &mut self.packed;
        packed.clear();
        values.iter().for_each(|&v| varint(packed, v as u64));
        let length = numbers_len(stack.frames, &stack.packed)
            + numbers_len(values.len(), packed)
            + labels.len();
        self.buf.push(2 << 3 | 2);
        varint(&mut self.buf, length as u64);
        numbers(&mut self.buf, 1, stack.frames, &stack.packed);
        numbers(&mut self.buf, 2, values.len(), packed);
        self.buf.extend_from_slice(labels);
        self.flush(FLUSH)
    }

    /// What comes after the samples; the writer.
    fn tables(mut self, profile: &Profile) -> io::Result<W> {
        for mapping in &profile.mapping {
            let message = proto::Mapping {
                id: mapping.id,
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                filename: self.text(mapping.filename),
                build_id: self.text(mapping.build_id),
                has_functions: mapping.has_functions,
                has_filenames: mapping.has_filenames,
                has_line_numbers: mapping.has_line_numbers,
                has_inline_frames: mapping.has_inline_frames,
            };
            self.message(3, &message)?;
        }
        for location in &profile.location {
            let message = location_message(profile, location);
            self.message(4, &message)?;
        }
        for function in &profile.function {
            let message = proto::Function {
                id: function.id,
                name: self.text(function.name),
                system_name: self.text(function.system_name),
                filename: self.text(function.filename),
                start_line: function.start_line,
            };
            self.message(5, &message)?;
        }
        self.header(profile)
    }

    fn label(&mut self, label: &Label) -> proto::Label {
        proto::Label {
            key: self.text(label.key),
            str: self.text(label.str),
            num: label.num,
            num_unit: self.text(label.num_unit),
        }
    }

    /// Everything after the functions, the string table first though its last texts come from what follows it.
    fn header(mut self, profile: &Profile) -> io::Result<W> {
        let drop_frames = self.text(profile.drop_frames);
        let keep_frames = self.text(profile.keep_frames);
        let period_type = profile.period_type.map(|t| self.value_type(t));
        let comments: Vec<i64> = profile.comment.iter().map(|&c| self.text(c)).collect();
        let default_sample_type = self.text(profile.default_sample_type);
        let doc_url = self.text(profile.doc_url);
        for at in 0..self.texts.len() {
            let text = profile.text(self.texts[at]).to_string();
            string::encode(6, &text, &mut self.buf);
            self.flush(FLUSH)?;
        }
        let buf = &mut self.buf;
        let mut number = |field, value: i64| {
            if value != 0 {
                int64::encode(field, &value, buf);
            }
        };
        number(7, drop_frames);
        number(8, keep_frames);
        number(9, profile.time_nanos);
        number(10, profile.duration_nanos);
        if let Some(period_type) = period_type
            && period_type != proto::ValueType::default()
        {
            prost::encoding::message::encode(11, &period_type, &mut self.buf);
        }
        if profile.period != 0 {
            int64::encode(12, &profile.period, &mut self.buf);
        }
        match comments.len() {
            0..=2 => int64::encode_repeated(13, &comments, &mut self.buf),
            _ => int64::encode_packed(13, &comments, &mut self.buf),
        }
        // Written even when empty, as pprof does.
        int64::encode(14, &default_sample_type, &mut self.buf);
        if doc_url != 0 {
            int64::encode(15, &doc_url, &mut self.buf);
        }
        self.flush(1)?;
        Ok(self.writer)
    }
}

/// A number as it is written, made once for many uses.
struct Varint {
    bytes: [u8; 10],
    length: u8,
}

impl Varint {
    fn new(number: u64) -> Self {
        let (mut bytes, mut length, mut rest) = ([0; 10], 1, number);
        while rest >= 0x80 {
            bytes[length - 1] = rest as u8 | 0x80;
            length += 1;
            rest >>= 7;
        }
        bytes[length - 1] = rest as u8;
        let length = length as u8;
        Self { bytes, length }
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        const WORD: usize = 8;
        let length = usize::from(self.length);
        // Lengths can't be predicted: all but absurd numbers are copied as a word of which the rest is cut off again.
        if length > WORD {
            out.extend_from_slice(&self.bytes[..length]);
            return;
        }
        let end = out.len() + length;
        out.extend_from_slice(&self.bytes[..WORD]);
        out.truncate(end);
    }
}

/// Adds a number as protobuf writes it.
#[inline]
fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// How long a number is as protobuf writes it.
fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// pprof packs numbers only where that saves bytes.
fn is_packed(count: usize) -> bool {
    count > 2
}

/// The length of a field of so many numbers.
fn numbers_len(count: usize, packed: &[u8]) -> usize {
    if is_packed(count) {
        1 + varint_len(packed.len() as u64) + packed.len()
    } else {
        count + packed.len()
    }
}

/// Adds a field of so many numbers, which are given packed.
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

/// A stack's location ids as they are written, leaf first: a stack with the same oldest frames has the same last bytes.
#[derive(Default)]
struct PackedStack {
    packed: Vec<u8>,
    frames: usize,
    /// How many bytes the oldest one, two, ... frames take, where stacks go on from each other.
    bytes: Vec<usize>,
    next: Vec<u8>,
}

impl PackedStack {
    /// Becomes another stack, leaf first.
    fn set(&mut self, stack: &[LocationIndex], ids: &[Varint]) {
        self.packed.clear();
        for &LocationIndex(l) in stack {
            ids[l as usize].put(&mut self.packed);
        }
        self.frames = stack.len();
    }

    /// Becomes a stack of some of its own oldest frames and newer ones (leaf first).
    fn go_on(&mut self, shared: usize, newer: &[LocationIndex], ids: &[Varint]) {
        self.bytes.truncate(shared);
        let mut end = self.bytes.last().copied().unwrap_or(0);
        let same = &self.packed[self.packed.len() - end..];
        self.next.clear();
        for &LocationIndex(l) in newer {
            ids[l as usize].put(&mut self.next);
        }
        self.next.extend_from_slice(same);
        for &LocationIndex(l) in newer.iter().rev() {
            end += usize::from(ids[l as usize].length);
            self.bytes.push(end);
        }
        self.frames = self.bytes.len();
        std::mem::swap(&mut self.packed, &mut self.next);
    }
}

fn location_message(profile: &Profile, location: &Location) -> proto::Location {
    let line = |line: &crate::Line| proto::Line {
        function_id: profile.function[line.function.index()].id,
        line: line.line,
        column: line.column,
    };
    proto::Location {
        id: location.id,
        mapping_id: location
            .mapping
            .map_or(0, |m| profile.mapping[m.index()].id),
        address: location.address,
        line: profile.lines(location).iter().map(line).collect(),
        is_folded: location.is_folded,
    }
}
