//! From a [`Profile`] to a file, field by field through prost: equal profiles give equal bytes.
//!
//! Messages, text and packing come in the order pprof writes them (facts from google/pprof's
//! profile/encode.go), so that its output and ours can be compared.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use foldhash::{HashMap, HashMapExt};
use prost::Message;
use prost::encoding::{int64, string};

use crate::error::Error;
use crate::model::{Label, Location, LocationIndex, Profile, ValueType};
use crate::pack::Packer;
use crate::proto;
use crate::strings::StringId;

/// Writes `profile` gzipped, without time or name in the gzip header.
pub fn encode(profile: &Profile, writer: impl Write) -> Result<(), Error> {
    encode_gzip(profile, writer, Compression::default())
}

/// As [`encode`], but gzipped as quickly as may be: for writers inside a program that has other things to do.
pub fn encode_quickly(profile: &Profile, writer: impl Write) -> Result<(), Error> {
    encode_gzip(profile, writer, Compression::fast())
}

/// As [`encode`], but what gzip makes less than a third smaller is stored as it is: for tools whose users wait.
pub fn encode_loosely(profile: &Profile, writer: impl Write) -> Result<(), Error> {
    let mut packer = Packer::new(writer).map_err(Error::Write)?;
    encode_plain(profile, &mut packer)?;
    let finished = packer.finish().and_then(|mut writer| writer.flush());
    finished.map_err(Error::Write)
}

fn encode_gzip(profile: &Profile, writer: impl Write, level: Compression) -> Result<(), Error> {
    let mut gzip: GzEncoder<_> = GzBuilder::new().write(writer, level);
    encode_plain(profile, &mut gzip)?;
    let finished = gzip.finish().and_then(|mut writer| writer.flush());
    finished.map_err(Error::Write)
}

/// Writes `profile` without gzip.
pub fn encode_plain(profile: &Profile, writer: impl Write) -> Result<(), Error> {
    let mut encoder = Encoder {
        profile,
        writer,
        buf: Vec::with_capacity(2 * FLUSH),
        index: vec![None; profile.strings.len()],
        texts: Vec::new(),
        label_sets: HashMap::new(),
    };
    encoder.text(StringId::EMPTY);
    encoder.all().map_err(Error::Write)
}

const FLUSH: usize = 64 << 10;

struct Encoder<'a, W> {
    profile: &'a Profile,
    writer: W,
    buf: Vec<u8>,
    /// Where each text went in the file's string table.
    index: Vec<Option<i64>>,
    texts: Vec<StringId>,
    /// The labels of each set as they are written.
    label_sets: HashMap<u32, Vec<u8>>,
}

impl<W: Write> Encoder<'_, W> {
    /// The number of a text in the file, given at first use.
    fn text(&mut self, id: StringId) -> i64 {
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

    fn all(mut self) -> io::Result<()> {
        let profile = self.profile;
        for &value_type in &profile.sample_type {
            let message = self.value_type(value_type);
            self.message(1, &message)?;
        }
        self.samples()?;
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
        self.header()
    }

    fn samples(&mut self) -> io::Result<()> {
        let samples = &self.profile.samples;
        let ids: Vec<Varint> = self
            .profile
            .location
            .iter()
            .map(|location| Varint::new(location.id))
            .collect();
        let mut values = Vec::new();
        for i in 0..samples.len() {
            let stack = samples.stack(i);
            let set = samples.label_set(i);
            if set.0 != 0 && !self.label_sets.contains_key(&set.0) {
                let mut encoded = Vec::new();
                for label in self.profile.label_sets.get(set) {
                    let message = self.label(label);
                    prost::encoding::message::encode(3, &message, &mut encoded);
                }
                self.label_sets.insert(set.0, encoded);
            }
            let labels = match set.0 {
                0 => &[][..],
                set => &self.label_sets[&set],
            };
            values.clear();
            let numbers = samples.values(i);
            // pprof packs only where it saves bytes.
            let packed = numbers.len() > 2;
            for &value in numbers {
                if !packed {
                    values.push(2 << 3);
                }
                varint(&mut values, value as u64);
            }
            let frames: usize = stack.iter().map(|l| ids[l.index()].length()).sum();
            let frames_length = match stack.len() {
                0..=2 => stack.len() + frames,
                _ => 1 + varint_length(frames) + frames,
            };
            let values_length = match packed {
                false => values.len(),
                true => 1 + varint_length(values.len()) + values.len(),
            };
            let buf = &mut self.buf;
            buf.push(2 << 3 | 2);
            varint(buf, (frames_length + values_length + labels.len()) as u64);
            if stack.len() > 2 {
                buf.push(1 << 3 | 2);
                varint(buf, frames as u64);
                for &LocationIndex(l) in stack {
                    ids[l as usize].put(buf);
                }
            } else {
                for &LocationIndex(l) in stack {
                    buf.push(1 << 3);
                    ids[l as usize].put(buf);
                }
            }
            if packed {
                buf.push(2 << 3 | 2);
                varint(buf, values.len() as u64);
            }
            buf.extend_from_slice(&values);
            buf.extend_from_slice(labels);
            self.flush(FLUSH)?;
        }
        Ok(())
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
    fn header(mut self) -> io::Result<()> {
        let profile = self.profile;
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
        self.writer.flush()?;
        Ok(())
    }
}

/// A number as it is written, made once for many uses.
#[derive(Clone, Copy)]
struct Varint {
    bytes: [u8; 15],
    length: u8,
}

impl Varint {
    fn new(number: u64) -> Self {
        let mut written = Vec::with_capacity(10);
        varint(&mut written, number);
        let mut bytes = [0; 15];
        bytes[..written.len()].copy_from_slice(&written);
        let length = written.len() as u8;
        Self { bytes, length }
    }

    #[inline]
    fn length(&self) -> usize {
        usize::from(self.length)
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        let length = self.length();
        if length > 8 {
            out.extend_from_slice(&self.bytes[..length]);
            return;
        }
        // Copying a word and taking back what is too much is faster than copying a few bytes.
        let end = out.len() + length;
        out.extend_from_slice(&self.bytes[..8]);
        out.truncate(end);
    }
}

/// How many bytes a number takes.
fn varint_length(number: usize) -> usize {
    let bits = usize::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
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
