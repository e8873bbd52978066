//! Reads files of Devel::MAT::Dumper (`.pmat`) in versions 0.2 to 0.5 of their format, which the
//! module describes (`doc/format.txt`).
//!
//! A file lists, for each kind of value, the lengths of its parts, so that additions of a newer
//! version can be skipped. Only files of little-endian programs with 64 bits are read.

mod cursor;

use std::collections::HashMap;

use self::cursor::PmatCursor;
use crate::builder::ValueGraphBuilder;
use crate::kind::PerlValueKind;
use crate::step::ValueStep;
use crate::text::TextId;
use crate::values::{PathPhase, PerlValue, ValueGraph};

/// The first bytes of a `.pmat` file.
pub const PMAT_MAGIC: &[u8] = b"PMAT";

/// The newest minor version of the format that can be read: 0.5.
const NEWEST_VERSION: u8 = 5;
/// The oldest minor version of the format that can be read: 0.2. Older files have no table of
/// contexts.
const OLDEST_VERSION: u8 = 2;

// Flags of the program that wrote the file.
const BIG_ENDIAN_FLAG: u8 = 0x01;
const WORDS_64_BIT_FLAGS: u8 = 0x02 | 0x04;
const KNOWN_FLAGS: u8 = 0x1f;

/// The lowest kind number of an extension: a record that adds to an earlier value.
const FIRST_EXTENSION_KIND: u8 = 0x80;
/// The kind of a record that describes a C structure.
const STRUCTURE_TYPE_KIND: u8 = 0xf0;
/// The kind of a value that is a C structure.
const STRUCTURE_VALUE_KIND: u8 = 0x7f;
/// The kind number of a constant in the list that follows a sub.
const CONSTANT_LIST_KIND: u8 = 1;

/// The reason why a file can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmatError {
    /// The file ends too early.
    #[error("it ends at byte {0}, in the middle of {1}")]
    Truncated(usize, &'static str),
    /// The file is of a kind or version that can't be read.
    #[error("{0}")]
    Unsupported(String),
    /// The file contradicts itself, or has an unknown record.
    #[error("at byte {0}: {1}")]
    Invalid(usize, String),
}

/// The lengths of a record's parts: the numbers of bytes, addresses and texts.
#[derive(Clone, Copy, Default)]
struct RecordLengths {
    bytes: usize,
    addresses: usize,
    texts: usize,
}

/// The parts of a record.
struct RecordParts<'a> {
    bytes: &'a [u8],
    addresses: Vec<u64>,
    texts: Vec<Option<&'a [u8]>>,
}

impl RecordParts<'_> {
    /// Returns the word at an offset in the record's bytes; 0 if the record has fewer bytes.
    fn word(&self, at: usize) -> u64 {
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    fn address(&self, number: usize) -> u64 {
        self.addresses.get(number).copied().unwrap_or(0)
    }

    fn text(&self, number: usize) -> String {
        let text = self
            .texts
            .get(number)
            .copied()
            .flatten()
            .unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// A field of a C structure: its name, and its size in bytes; the size is `None` for an address.
struct StructureField {
    name: String,
    bytes: Option<usize>,
}

/// The pads of a sub, and the names of its variables by their index in a pad.
#[derive(Default)]
struct SubPads {
    names: Vec<(u64, TextId)>,
    pads: Vec<u64>,
}

/// Reads a file of Devel::MAT::Dumper.
///
/// # Errors
/// The file may be cut off, be of an unknown version, or contradict itself.
pub fn read(bytes: &[u8]) -> Result<ValueGraph, PmatError> {
    let mut file = PmatFile {
        cursor: PmatCursor::new(bytes),
        kinds: Vec::new(),
        extensions: Vec::new(),
        contexts: Vec::new(),
        structures: Vec::new(),
        values: ValueGraphBuilder::default(),
        pads: Vec::new(),
        total: 0,
    };
    file.header()?;
    file.roots()?;
    while file.next()? {}
    file.contexts()?;
    file.mortals()?;
    file.name_pads();
    Ok(file.values.finish())
}

struct PmatFile<'a> {
    cursor: PmatCursor<'a>,
    /// Lengths of records by kind number. The first entry is for the part that all kinds have in
    /// common.
    kinds: Vec<RecordLengths>,
    extensions: Vec<RecordLengths>,
    contexts: Vec<RecordLengths>,
    structures: Vec<(u64, Vec<StructureField>)>,
    values: ValueGraphBuilder,
    /// The pads of each sub.
    pads: Vec<SubPads>,
    /// The sum of the sizes of all values read so far.
    total: u64,
}

impl<'a> PmatFile<'a> {
    fn header(&mut self) -> Result<(), PmatError> {
        let cursor = &mut self.cursor;
        if cursor.bytes(4, "its head")? != PMAT_MAGIC {
            return Err(PmatError::Unsupported(
                "it is not a Devel::MAT::Dumper file".into(),
            ));
        }
        let flags = cursor.byte("its head")?;
        let [_, major, minor] = *cursor.array("its head")?;
        if major != 0 || !(OLDEST_VERSION..=NEWEST_VERSION).contains(&minor) {
            return Err(PmatError::Unsupported(format!(
                "it has version {major}.{minor} of the format, but only 0.{OLDEST_VERSION} to \
                 0.{NEWEST_VERSION} are supported"
            )));
        }
        if flags & !KNOWN_FLAGS != 0
            || flags & BIG_ENDIAN_FLAG != 0
            || flags & WORDS_64_BIT_FLAGS != WORDS_64_BIT_FLAGS
        {
            return Err(PmatError::Unsupported(
                "it is from a machine that is not 64-bit little-endian".into(),
            ));
        }
        cursor.array::<4>("its head")?;
        self.kinds = lengths(cursor)?;
        // Until 0.3 magic was the only extension of a value.
        self.extensions = match minor {
            4.. => lengths(cursor)?,
            _ => vec![RecordLengths {
                bytes: 2,
                addresses: 2,
                texts: 0,
            }],
        };
        self.contexts = lengths(cursor)?;
        match self.kinds.first() {
            Some(common) if common.bytes >= 20 && common.addresses >= 1 => Ok(()),
            _ => Err(cursor.error_here("the common header of values is too short")),
        }
    }

    fn roots(&mut self) -> Result<(), PmatError> {
        let cursor = &mut self.cursor;
        let constants = ["undef", "yes", "no"];
        let mut roots = Vec::new();
        for name in constants {
            roots.push((name.to_string(), cursor.word("roots")?));
        }
        let count = u32::from_le_bytes(*cursor.array("roots")?);
        for _ in 0..count {
            let name = cursor.text("roots")?.unwrap_or_default();
            roots.push((
                String::from_utf8_lossy(name).into_owned(),
                cursor.word("roots")?,
            ));
        }
        for (name, address) in roots {
            let (phase, name) = match name.as_str() {
                "defstash" => (PathPhase::Symbols, "main::".to_string()),
                name => (PathPhase::Others, format!("(root {name})")),
            };
            self.values.add_root(phase, "", &name, address);
        }
        let count = cursor.count(8, "the stack")?;
        for _ in 0..count {
            let address = cursor.word("the stack")?;
            self.values
                .add_root(PathPhase::Others, "", "(root stack)", address);
        }
        Ok(())
    }

    /// Reads the next value or extension. Returns false at the end of the values.
    fn next(&mut self) -> Result<bool, PmatError> {
        let kind = self.cursor.byte("the list of values")?;
        match kind {
            0 => return Ok(false),
            STRUCTURE_TYPE_KIND => self.structure()?,
            FIRST_EXTENSION_KIND.. => self.extension(kind)?,
            kind => self.value(kind)?,
        }
        Ok(true)
    }

    /// Reads the running contexts: subs, and texts that are evaluated. Contexts refer to their code
    /// and arguments.
    fn contexts(&mut self) -> Result<(), PmatError> {
        loop {
            let kind = self.cursor.byte("the list of contexts")?;
            if kind == 0 {
                return Ok(());
            }
            let common = self.contexts.first().copied().unwrap_or_default();
            self.parts(common)?;
            let Some(&lengths) = self.contexts.get(usize::from(kind)) else {
                return Err(self
                    .cursor
                    .error_here(&format!("a context of the unknown kind {kind}")));
            };
            for to in self.parts(lengths)?.addresses {
                self.values.add_root(PathPhase::Others, "", "(running)", to);
            }
        }
    }

    /// Reads the values that Perl frees when the statement ends. Older files have none.
    fn mortals(&mut self) -> Result<(), PmatError> {
        if self.cursor.is_at_end() {
            return Ok(());
        }
        for _ in 0..self.cursor.count(8, "temporary values")? {
            let address = self.cursor.word("temporary values")?;
            self.values
                .add_root(PathPhase::Others, "", "(until the statement ends)", address);
        }
        Ok(())
    }

    fn parts(&mut self, lengths: RecordLengths) -> Result<RecordParts<'a>, PmatError> {
        let cursor = &mut self.cursor;
        let bytes = cursor.bytes(lengths.bytes, "a value")?;
        let addresses = (0..lengths.addresses).map(|_| cursor.word("a value"));
        let addresses = addresses.collect::<Result<_, _>>()?;
        let texts = (0..lengths.texts).map(|_| cursor.text("a value"));
        Ok(RecordParts {
            bytes,
            addresses,
            texts: texts.collect::<Result<_, _>>()?,
        })
    }

    /// Reads the description of a C structure.
    fn structure(&mut self) -> Result<(), PmatError> {
        let cursor = &mut self.cursor;
        let id = cursor.word("a structure")?;
        let count = cursor.count(9, "a structure")?;
        cursor.text("a structure")?;
        let mut fields = Vec::new();
        for _ in 0..count {
            let name = cursor.text("a structure")?.unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            let bytes = match cursor.byte("a structure")? {
                0 => None,
                1 | 2 => Some(1),
                3 => Some(4),
                4 => Some(8),
                kind => {
                    return Err(cursor.error_here(&format!("a field of the unknown kind {kind}")));
                }
            };
            fields.push(StructureField { name, bytes });
        }
        self.structures.push((id, fields));
        Ok(())
    }

    /// Reads an extension: a record that adds to an earlier value.
    fn extension(&mut self, kind: u8) -> Result<(), PmatError> {
        let Some(&lengths) = self
            .extensions
            .get(usize::from(kind - FIRST_EXTENSION_KIND))
        else {
            return Err(self
                .cursor
                .error_here(&format!("something of the unknown kind {kind:#x}")));
        };
        let of = self.cursor.word("a value")?;
        let parts = self.parts(lengths)?;
        let mut saved = |word| (self.values.named_step(word), true);
        let ways: Vec<(u64, (ValueStep, bool))> = match kind - FIRST_EXTENSION_KIND {
            0 => {
                let magic = ValueStep::Magic(parts.byte(0));
                let is_counted = parts.byte(1) & 1 != 0;
                vec![
                    (parts.address(0), (magic, is_counted)),
                    (parts.address(1), (magic, true)),
                ]
            }
            1 => vec![(parts.address(0), saved("saved scalar"))],
            2 => vec![(parts.address(0), saved("saved array"))],
            3 => vec![(parts.address(0), saved("saved hash"))],
            4 => vec![(parts.address(0), saved("saved element"))],
            5 => vec![
                (parts.address(0), saved("saved key")),
                (parts.address(1), saved("saved value")),
            ],
            6 => vec![(parts.address(0), saved("saved code"))],
            7 => {
                let name = self.values.text_id(&parts.text(0));
                vec![(parts.address(0), (ValueStep::Named(name), true))]
            }
            _ => Vec::new(),
        };
        for (to, (step, is_strong)) in ways {
            self.values.lead_later(of, to, step, is_strong);
        }
        Ok(())
    }

    fn value(&mut self, number: u8) -> Result<(), PmatError> {
        let common = self.parts(self.kinds[0])?;
        let mut value = PerlValue {
            address: common.word(0),
            references: common.word(8) as u32,
            size: common.word(12),
            asked: common.word(12),
            class: common.address(0),
            ..PerlValue::default()
        };
        // Sums of sizes are numbers of 63 bits.
        let total = self.total.checked_add(value.size);
        self.total = total
            .filter(|&total| i64::try_from(total).is_ok())
            .ok_or_else(|| {
                self.cursor
                    .error_here("the sizes of values do not fit in 63 bits")
            })?;
        if number == STRUCTURE_VALUE_KIND {
            // The field of the class has the number of the structure.
            let which = std::mem::take(&mut value.class);
            value.kind = PerlValueKind::Structure;
            self.fields(which)?;
            self.values.end(value);
            return Ok(());
        }
        let Some(&lengths) = self.kinds.get(usize::from(number)) else {
            return Err(self
                .cursor
                .error_here(&format!("a value of the unknown kind {number}")));
        };
        let parts = self.parts(lengths)?;
        match number {
            1 => self.glob(&mut value, &parts),
            2 => value.kind = PerlValueKind::Scalar,
            3 => {
                value.kind = PerlValueKind::Reference;
                let is_strong = parts.byte(0) & 1 == 0;
                self.values
                    .lead_to(parts.address(0), ValueStep::Referent, is_strong);
            }
            4 => self.array(&mut value, &parts)?,
            5 => self.hash(&mut value, PerlValueKind::Hash, &parts)?,
            6 => self.hash(&mut value, PerlValueKind::Stash, &parts)?,
            7 => self.code(&mut value, &parts)?,
            8 => {
                value.kind = PerlValueKind::Io;
                for &to in &parts.addresses {
                    let step = self.values.named_step("format");
                    self.values.lead_to(to, step, true);
                }
            }
            9 => {
                value.kind = PerlValueKind::Lvalue;
                self.values
                    .lead_to(parts.address(0), ValueStep::Target, true);
            }
            10 => value.kind = PerlValueKind::Regexp,
            11 => value.kind = PerlValueKind::Format,
            12 => value.kind = PerlValueKind::Invlist,
            13 => value.kind = PerlValueKind::Undefined,
            14 => value.kind = PerlValueKind::Yes,
            15 => value.kind = PerlValueKind::No,
            16 => self.object(&mut value, &parts)?,
            17 => self.hash(&mut value, PerlValueKind::Class, &parts)?,
            _ => {
                return Err(self
                    .cursor
                    .error_here(&format!("a value of the unknown kind {number}")));
            }
        }
        self.values.end(value);
        Ok(())
    }

    fn glob(&mut self, value: &mut PerlValue, parts: &RecordParts<'_>) {
        value.kind = PerlValueKind::Glob;
        value.name = self.values.text_id(&parts.text(0));
        // Scalar, array, hash, code, handle, format. Address 5 is the symbol for which this one
        // stands.
        for (number, sigil) in [
            (1, b'$'),
            (2, b'@'),
            (3, b'%'),
            (4, b'&'),
            (6, b'*'),
            (7, b'*'),
        ] {
            let to = parts.address(number);
            self.values.lead_to(to, ValueStep::Slot(sigil), true);
        }
    }

    fn array(&mut self, value: &mut PerlValue, parts: &RecordParts<'_>) -> Result<(), PmatError> {
        value.kind = PerlValueKind::Array;
        let count = self.cursor.count_of(parts.word(0), 8, "an array")?;
        // Elements of an array that is not real are not counted as references.
        let is_strong = parts.byte(8) & 1 == 0;
        for number in 0..count {
            let to = self.cursor.word("an array")?;
            self.values
                .lead_to(to, ValueStep::Element(number as u32), is_strong);
        }
        Ok(())
    }

    fn object(&mut self, value: &mut PerlValue, parts: &RecordParts<'_>) -> Result<(), PmatError> {
        value.kind = PerlValueKind::Object;
        let count = self.cursor.count_of(parts.word(0), 8, "an object")?;
        for number in 0..count {
            let to = self.cursor.word("an object")?;
            self.values
                .lead_to(to, ValueStep::Field(number as u32), true);
        }
        Ok(())
    }

    fn hash(
        &mut self,
        value: &mut PerlValue,
        kind: PerlValueKind,
        parts: &RecordParts<'_>,
    ) -> Result<(), PmatError> {
        value.kind = kind;
        if kind.is_stash() {
            value.name = self.values.text_id(&parts.text(0));
            // The first address is that of the list of back references, which keeps nothing alive.
            for &to in parts.addresses.iter().skip(1) {
                let step = self.values.named_step("method cache");
                self.values.lead_to(to, step, true);
            }
        }
        let backward = parts.address(0);
        let step = self.values.named_step("back references");
        self.values.lead_to(backward, step, true);
        let count = self.cursor.count_of(parts.word(0), 16, "a hash")?;
        for _ in 0..count {
            let key = self.cursor.text("a hash")?.unwrap_or_default();
            let key = self.values.text_id(&String::from_utf8_lossy(key));
            let to = self.cursor.word("a hash")?;
            self.values.lead_to(to, ValueStep::Key(key), true);
        }
        Ok(())
    }

    fn fields(&mut self, which: u64) -> Result<(), PmatError> {
        let found = self.structures.iter().position(|(id, _)| *id == which);
        let Some(found) = found else {
            return Err(self
                .cursor
                .error_here(&format!("a structure of the unknown kind {which}")));
        };
        for field in &self.structures[found].1 {
            match field.bytes {
                Some(bytes) => drop(self.cursor.bytes(bytes, "a structure")?),
                None => {
                    let name = self.values.text_id(&field.name);
                    let to = self.cursor.word("a structure")?;
                    self.values.lead_to(to, ValueStep::Named(name), true);
                }
            }
        }
        Ok(())
    }

    fn code(&mut self, value: &mut PerlValue, parts: &RecordParts<'_>) -> Result<(), PmatError> {
        value.kind = PerlValueKind::Code;
        value.name = self.values.text_id(&parts.text(1));
        let flags = parts.byte(8);
        // The outer sub may hold this one. Then this one does not hold it.
        let is_outside_strong = flags & 0x08 == 0;
        let [_, _, outside, list, constant] = [0, 1, 2, 3, 4].map(|i| parts.address(i));
        self.values
            .lead_to(outside, ValueStep::Outside, is_outside_strong);
        let step = self.values.named_step("pads");
        self.values.lead_to(list, step, true);
        self.values.lead_to(constant, ValueStep::Constant, true);
        let mut pads = SubPads::default();
        let what = "a sub";
        loop {
            match self.cursor.byte(what)? {
                0 => break,
                CONSTANT_LIST_KIND | 3 => {
                    let to = self.cursor.word(what)?;
                    self.values.lead_to(to, ValueStep::Constant, true);
                }
                2 | 4 => drop(self.cursor.word(what)?),
                5 => {
                    let place = self.cursor.word(what)?;
                    let name = self.cursor.text(what)?.unwrap_or_default();
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.cursor.word(what)?;
                    if !name.is_empty() {
                        pads.names.push((place, self.values.text_id(&name)));
                    }
                }
                6 => drop(self.cursor.bytes(24, what)?),
                7 => {
                    let to = self.cursor.word(what)?;
                    let step = self.values.named_step("names of variables");
                    self.values.lead_to(to, step, true);
                }
                8 => {
                    let depth = self.cursor.word(what)?;
                    let pad = self.cursor.word(what)?;
                    pads.pads.push(pad);
                    self.values.lead_to(pad, ValueStep::Pad(depth as u32), true);
                }
                9 => drop(self.cursor.bytes(9, what)?),
                10 => drop(self.cursor.bytes(24, what)?),
                kind => {
                    return Err(self
                        .cursor
                        .error_here(&format!("a part of a sub of the unknown kind {kind}")));
                }
            }
        }
        if !pads.pads.is_empty() {
            self.pads.push(pads);
        }
        Ok(())
    }

    /// Replaces the element numbers in pads by the names of variables.
    fn name_pads(&mut self) {
        for pads in std::mem::take(&mut self.pads) {
            let names: HashMap<u64, TextId> = pads.names.into_iter().collect();
            for pad in pads.pads {
                self.values.rename_elements(pad, |place| {
                    let name = names.get(&place.into());
                    name.map_or(ValueStep::Temporary, |&name| ValueStep::Variable(name))
                });
            }
        }
    }
}

fn lengths(cursor: &mut PmatCursor<'_>) -> Result<Vec<RecordLengths>, PmatError> {
    let count = cursor.byte("its head")?;
    let one = |_| {
        let [bytes, addresses, texts] = *cursor.array("its head")?;
        Ok(RecordLengths {
            bytes: bytes.into(),
            addresses: addresses.into(),
            texts: texts.into(),
        })
    };
    (0..count).map(one).collect()
}
