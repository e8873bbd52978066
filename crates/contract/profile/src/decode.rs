//! Decodes a file into a [`Profile`], in one pass over the stream. References are resolved at the
//! end.
//!
//! Fields may come in any order and the string table usually comes last, so ids and string numbers
//! are stored unresolved during the pass. Reading takes only the model's own memory: there is no
//! copy of the file and no message tree.

mod resolve;
mod samples;
mod stack;
mod stand_in;
mod tables;

use std::io::Read;

use crate::error::{Error, ProfileElement};
use crate::inflate::InflateReader;
use crate::model::{Profile, ValueType};
use crate::strings::StringId;
use crate::wire::{MessageFields, WireStream, WireValue};
pub(crate) use samples::{SAMPLED_FIELD, VARIANCE_FIELD};

/// Number of bytes that are read between two checks of the memory in use.
const MEMORY_CHECK_INTERVAL: u64 = 256 << 10;
/// Size in bytes from which a field's value is checked against the memory limit before it is
/// decoded.
const MIN_LONG_VALUE: usize = 256 << 10;

/// Maximum number of sample types in a profile. Real profiles have up to a dozen, and everything is
/// computed for each type.
const MAX_SAMPLE_TYPES: usize = 1024;

/// Options and limits for reading a profile.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Maximum number of bytes that a file may inflate to. This limit stops a gzip bomb.
    pub max_inflated: u64,
    /// Approximate maximum of the memory that reading may take, in bytes. In some files, one byte
    /// becomes sixteen bytes in memory.
    pub max_memory: u64,
    /// Whether stacks stay encoded, as in the file, until a caller asks for frames. This suits
    /// callers that only pass the profile on. Once a caller has asked for frames, both the encoded
    /// bytes and the frames are in memory.
    pub stacks_as_written: bool,
    /// Whether to ignore the fields for the spread of samples, which shows how accurate sampled
    /// values are. pprof ignores these fields, because it does not know them.
    pub without_spread: bool,
    /// Whether to skip samples, locations and functions. This suits callers that want only the
    /// header, the mappings and the texts of a profile.
    pub only_head: bool,
}

impl Default for ReadOptions {
    /// Limits the inflated size and the memory to 4 GiB each, thirty times the size of the largest
    /// known profile.
    fn default() -> Self {
        Self {
            max_inflated: 4 << 30,
            max_memory: 4 << 30,
            stacks_as_written: false,
            without_spread: false,
            only_head: false,
        }
    }
}

impl ReadOptions {
    /// Chooses whether stacks stay encoded until a caller asks for frames.
    pub fn stacks_as_written(mut self, kept: bool) -> Self {
        self.stacks_as_written = kept;
        self
    }

    /// Chooses whether to ignore the fields for the spread of samples, which shows how accurate
    /// sampled values are. pprof ignores these fields, because it does not know them.
    pub fn without_spread(mut self, without: bool) -> Self {
        self.without_spread = without;
        self
    }

    /// Chooses whether samples, locations and functions are skipped.
    pub fn only_head(mut self, only: bool) -> Self {
        self.only_head = only;
        self
    }

    /// Sets the limit for the memory that reading may take, in bytes.
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Sets the limit for the inflated size, in bytes.
    pub fn max_inflated(mut self, bytes: u64) -> Self {
        self.max_inflated = bytes;
        self
    }
}

/// Reads a profile, gzipped or plain, with the default limits.
///
/// ```
/// use heapprof_profile::{Error, ProfileBuilder, decode, encode};
/// let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
/// builder.add_folded("main;parse", &[96]);
/// let mut file = Vec::new();
/// encode(&builder.finish(), &mut file)?;
///
/// let profile = decode(&file[..])?;
/// assert_eq!(profile.samples.len(), 1);
/// let leaf = profile.samples.stack(0)[0];
/// let line = profile.lines(&profile.location[leaf.index()])[0];
/// assert_eq!(profile.text(profile.function[line.function.index()].name), "parse");
///
/// let cut = decode(&file[..file.len() - 9]);
/// assert!(matches!(cut, Err(Error::Gzip { .. })));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// Fails as [`decode_with`] does.
pub fn decode(reader: impl Read) -> Result<Profile, Error> {
    decode_with(reader, ReadOptions::default())
}

/// Reads a profile, gzipped or plain. Every reference in the result is valid.
///
/// ```
/// use heapprof_profile::{Error, ProfileBuilder, ReadOptions, decode_with, encode};
/// let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
/// for i in 0..10_000 {
///     builder.add_folded(&format!("main;parse;step{i}"), &[96]);
/// }
/// let mut file = Vec::new();
/// encode(&builder.finish(), &mut file)?;
///
/// let options = ReadOptions::default().max_inflated(100_000);
/// let error = decode_with(&file[..], options).unwrap_err();
/// assert!(matches!(error, Error::TooLarge { limit: 100_000 }));
/// assert!(error.is_limit());
/// assert!(decode_with(&file[..], options.max_inflated(10_000_000)).is_ok());
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// * Returns [`Error::Io`] when `reader` fails, and [`Error::Empty`] when it gives no bytes.
/// * Returns [`Error::NotAProfile`] when the content is not a profile.
/// * Returns [`Error::Gzip`] or [`Error::Wire`] when gzip or protobuf is damaged.
/// * Returns [`Error::Invalid`] when the messages contradict each other, when there are no sample
///   types, or when a reference leads nowhere. A mapping that is not in the file is only a
///   [`Warning`](crate::Warning).
/// * Returns [`Error::TooLarge`] or [`Error::TooMuchMemory`] when a limit of `options` is reached.
pub fn decode_with(reader: impl Read, options: ReadOptions) -> Result<Profile, Error> {
    let mut stream = WireStream::new(
        InflateReader::new(reader)?,
        options.max_inflated,
        options.max_memory,
    );
    let mut add_up_at = MEMORY_CHECK_INTERVAL;
    let mut decoder = ProfileDecoder::default();
    if options.stacks_as_written {
        decoder.samples = samples::RawSamples::keeping_bytes();
    }
    decoder.samples.without_spread = options.without_spread;
    let result = loop {
        match stream.next() {
            Ok(Some((2 | 4 | 5, ..))) if options.only_head => {}
            Ok(Some((field, value, offset))) => {
                let fits = decoder.fits(field, value, options.max_memory);
                if let Err(error) = fits.and_then(|()| decoder.field(field, value, offset)) {
                    break Err(error);
                }
                if stream.offset() >= add_up_at {
                    add_up_at = stream.offset() + MEMORY_CHECK_INTERVAL;
                    match options.max_memory.checked_sub(decoder.memory()) {
                        Some(room) => stream.room = room,
                        None => break Err(too_much_memory(options.max_memory)),
                    }
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    match result {
        Ok(()) => {
            if stream.offset() == 0 {
                return Err(Error::Empty);
            }
            decoder.finish()
        }
        // Damage to the gzip layer shows as nonsense in the content. The checksum at the end shows
        // whether gzip or the content is damaged.
        Err(error @ (Error::Wire { .. } | Error::Invalid { .. })) => match stream.drain() {
            Err(gzip @ Error::Gzip { .. }) => Err(gzip),
            _ => Err(decoder.explain(error, stream.heads())),
        },
        Err(error) => Err(error),
    }
}

fn too_much_memory(limit: u64) -> Error {
    Error::TooMuchMemory { limit }
}

/// A value type whose texts are still indices into the file's string table.
#[derive(Clone, Copy, Default)]
struct RawValueType {
    r#type: u64,
    unit: u64,
}

/// A profile that is being decoded. Texts are indices into the file's string table until the whole
/// table is read.
#[derive(Default)]
struct ProfileDecoder {
    sample_type: Vec<RawValueType>,
    samples: samples::RawSamples,
    tables: tables::RawTables,
    drop_frames: u64,
    keep_frames: u64,
    time_nanos: i64,
    duration_nanos: i64,
    period_type: Option<RawValueType>,
    period: i64,
    comment: Vec<u64>,
    default_sample_type: u64,
    doc_url: u64,
    /// Whether the stream contains two profiles. The sign is a second empty text, or a sample type
    /// after texts and samples.
    concatenated: bool,
}

impl ProfileDecoder {
    /// Estimates how many bytes of memory the decoder takes.
    fn memory(&self) -> u64 {
        let comment = self.comment.len() * (size_of::<u64>() + size_of::<StringId>());
        comment as u64 + self.samples.memory() + self.tables.memory()
    }

    /// Checks that a long value fits into the memory limit, both encoded and decoded.
    #[inline]
    fn fits(&self, field: u32, value: WireValue<'_>, limit: u64) -> Result<(), Error> {
        match value {
            WireValue::Bytes(bytes) if bytes.len() >= MIN_LONG_VALUE => {
                self.long_fits(field, bytes, limit)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn long_fits(&self, field: u32, bytes: &[u8], limit: u64) -> Result<(), Error> {
        // The number of bytes that one byte of the file may become in memory. A label, a line and a
        // number of a comment take only a few bytes each in the file.
        let times = match field {
            2 => 48,
            4 => 16,
            6 if str::from_utf8(bytes).is_ok() => 1,
            // Each byte that is not text takes three bytes, both here and in the table.
            6 => 6,
            13 => 12,
            _ => 0,
        };
        let length = bytes.len() as u64;
        let all = length
            .saturating_mul(1 + times)
            .saturating_add(self.memory());
        match all <= limit {
            true => Ok(()),
            false => Err(too_much_memory(limit)),
        }
    }

    fn field(&mut self, field: u32, value: WireValue<'_>, offset: u64) -> Result<(), Error> {
        // This message around the field is empty. It gives errors their offset and object.
        let whole = MessageFields::new(&[], offset, ProfileElement::Profile);
        let number = |value| whole.number(field, value);
        match field {
            1 => {
                self.concatenated |= self.tables.strings_seen() > 0 && !self.samples.is_empty();
                let object = ProfileElement::SampleType(self.sample_type.len() + 1);
                if self.sample_type.len() == MAX_SAMPLE_TYPES {
                    return Err(Error::Invalid {
                        offset: Some(offset),
                        object,
                        defect: format!("is beyond the {MAX_SAMPLE_TYPES} that a profile may have"),
                        hint: "",
                    });
                }
                let body = whole.bytes(field, value)?;
                self.sample_type.push(value_type(body, offset, object)?);
            }
            2 => self.samples.read(whole.bytes(field, value)?, offset)?,
            3 => self.tables.mapping(whole.bytes(field, value)?, offset)?,
            4 => self.tables.location(whole.bytes(field, value)?, offset)?,
            5 => self.tables.function(whole.bytes(field, value)?, offset)?,
            6 => {
                let text = whole.bytes(field, value)?;
                self.concatenated |= text.is_empty() && self.tables.strings_seen() > 0;
                self.tables.string(text, offset)?;
            }
            7 => self.drop_frames = number(value)?,
            8 => self.keep_frames = number(value)?,
            9 => self.time_nanos = number(value)? as i64,
            10 => self.duration_nanos = number(value)? as i64,
            11 => {
                let body = whole.bytes(field, value)?;
                let raw = value_type(body, offset, ProfileElement::PeriodType)?;
                // An empty period type means the same as a missing one.
                self.period_type = (raw.r#type != 0 || raw.unit != 0).then_some(raw);
            }
            12 => self.period = number(value)? as i64,
            13 => whole.numbers(field, value, |n| self.comment.push(n))?,
            14 => self.default_sample_type = number(value)?,
            15 => self.doc_url = number(value)?,
            _ => {}
        }
        Ok(())
    }

    /// Turns an error into [`Error::NotAProfile`] if the file is not a profile; otherwise adds a
    /// hint to the error.
    fn explain(&self, error: Error, (file, plain): (&[u8], &[u8])) -> Error {
        // Only a file without samples can be something other than a profile.
        if self.samples.is_empty()
            && let Some(kind) = foreign(plain, plain.len() < file.len() || plain[..] != *file)
        {
            return Error::NotAProfile(kind);
        }
        self.with_hint(error)
    }

    fn with_hint(&self, error: Error) -> Error {
        let hint = match self.concatenated {
            true => {
                "; the file seems to hold several profiles one after the other: split it, and name \
                 them side by side to merge them"
            }
            false => "; the file is damaged, or its writer made a mistake: write the profile again",
        };
        match error {
            Error::Wire {
                offset,
                object,
                defect,
                ..
            } => Error::Wire {
                offset,
                object,
                defect,
                hint,
            },
            Error::Invalid {
                offset,
                object,
                defect,
                ..
            } => Error::Invalid {
                offset,
                object,
                defect,
                hint,
            },
            other => other,
        }
    }

    fn finish(self) -> Result<Profile, Error> {
        let concatenated = self.concatenated;
        let hints = ProfileDecoder {
            concatenated,
            ..ProfileDecoder::default()
        };
        resolve::resolve(self).map_err(|error| hints.with_hint(error))
    }
}

fn value_type(body: &[u8], offset: u64, object: ProfileElement) -> Result<RawValueType, Error> {
    let mut raw = RawValueType::default();
    let mut fields = MessageFields::new(body, offset, object);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => raw.r#type = fields.number(field, value)?,
            2 => raw.unit = fields.number(field, value)?,
            _ => {}
        }
    }
    Ok(raw)
}

/// Resolves a [`RawValueType`].
fn resolve_value_type(
    raw: RawValueType,
    mut text: impl FnMut(u64) -> Result<StringId, Error>,
) -> Result<ValueType, Error> {
    Ok(ValueType {
        r#type: text(raw.r#type)?,
        unit: text(raw.unit)?,
    })
}

/// Describes the kind of a file that is not a profile, from its first bytes; `None` if these bytes
/// do not show the kind.
fn foreign(head: &[u8], gzipped: bool) -> Option<String> {
    if head.starts_with(b"\x1f\x8b") {
        return Some("is gzipped twice; unpack it once".to_string());
    }
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    // A protobuf message may hold only text by chance. Its tag may then be a line end, and prose
    // does not begin with a line end.
    if text.is_empty() || !text.chars().all(plain) || text.starts_with('\n') {
        return None;
    }
    let line: String = text.lines().next().unwrap_or("").chars().take(40).collect();
    let inside = if gzipped { " inside its gzip" } else { "" };
    Some(format!("is text{inside} that begins with {line:?}"))
}
