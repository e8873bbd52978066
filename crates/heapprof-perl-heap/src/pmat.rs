//! Files of Devel::MAT::Dumper (`.pmat`), in the versions 0.2 to 0.5 of their format, which the
//! module describes (`doc/format.txt`).
//!
//! A file says how long the parts of each kind of value are, so that what a newer version added can
//! be passed over. Numbers of little-endian programs with 64 bits are read.

mod cursor;

use std::collections::HashMap;

use self::cursor::Cursor;
use crate::builder::Builder;
use crate::kind::Kind;
use crate::step::Step;
use crate::text::TextId;
use crate::values::{Phase, Value, Values};

/// What a file begins with.
pub const MAGIC: &[u8] = b"PMAT";

/// The newest version that is known: 0.5.
const NEWEST: u8 = 5;
/// Older ones have no table of contexts.
const OLDEST: u8 = 2;

// Flags of the program that wrote the file.
const IS_BIG_ENDIAN: u8 = 0x01;
const HAS_64_BITS: u8 = 0x02 | 0x04;
const KNOWN_FLAGS: u8 = 0x1f;

/// The first of the kinds that say more of a value that came before.
const EXTENSIONS: u8 = 0x80;
/// The kind that describes a structure of C's.
const STRUCTURE: u8 = 0xf0;
/// The kind of a value that is such a structure.
const OF_STRUCTURE: u8 = 0x7f;
/// The kinds of the lists that follow a sub.
const CONSTANT: u8 = 1;

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It ends too early.
    #[error("it ends at byte {0}, in the middle of {1}")]
    Cut(usize, &'static str),
    /// It is of a kind that is not read.
    #[error("{0}")]
    NotRead(String),
    /// It contradicts itself, or has something that is not known.
    #[error("at byte {0}: {1}")]
    Wrong(usize, String),
}

/// How long the parts of something are: bytes, addresses, texts.
#[derive(Clone, Copy, Default)]
struct Lengths {
    bytes: usize,
    addresses: usize,
    texts: usize,
}

/// The parts of something.
struct Parts<'a> {
    bytes: &'a [u8],
    addresses: Vec<u64>,
    texts: Vec<Option<&'a [u8]>>,
}

impl Parts<'_> {
    /// The word at a distance in the bytes; 0 if there are fewer.
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

/// A field of a structure of C's: its name, and whether it is an address; otherwise how many bytes
/// it has.
struct Field {
    name: String,
    bytes: Option<usize>,
}

/// The sub of a pad, and the names of its variables by their places.
#[derive(Default)]
struct Pads {
    names: Vec<(u64, TextId)>,
    pads: Vec<u64>,
}

/// Reads a file.
///
/// # Errors
/// It may be cut, of an unknown version, or contradict itself.
pub fn read(bytes: &[u8]) -> Result<Values, Error> {
    let mut file = File {
        cursor: Cursor::new(bytes),
        kinds: Vec::new(),
        extensions: Vec::new(),
        contexts: Vec::new(),
        structures: Vec::new(),
        values: Builder::default(),
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

struct File<'a> {
    cursor: Cursor<'a>,
    /// By the number of the kind; the first one is what all have.
    kinds: Vec<Lengths>,
    extensions: Vec<Lengths>,
    contexts: Vec<Lengths>,
    structures: Vec<(u64, Vec<Field>)>,
    values: Builder,
    /// What subs say of their pads.
    pads: Vec<Pads>,
    /// The sum of sizes so far.
    total: u64,
}

impl<'a> File<'a> {
    fn header(&mut self) -> Result<(), Error> {
        let cursor = &mut self.cursor;
        if cursor.bytes(4, "its head")? != MAGIC {
            return Err(Error::NotRead("it is no file of Devel::MAT::Dumper".into()));
        }
        let flags = cursor.byte("its head")?;
        let [_, major, minor] = *cursor.array("its head")?;
        if major != 0 || !(OLDEST..=NEWEST).contains(&minor) {
            return Err(Error::NotRead(format!(
                "it is of version {major}.{minor} of the format, and 0.{OLDEST} to 0.{NEWEST} are \
                 read"
            )));
        }
        if flags & !KNOWN_FLAGS != 0
            || flags & IS_BIG_ENDIAN != 0
            || flags & HAS_64_BITS != HAS_64_BITS
        {
            return Err(Error::NotRead(
                "it is of a machine that is not little-endian with 64 bits".into(),
            ));
        }
        cursor.array::<4>("its head")?;
        self.kinds = lengths(cursor)?;
        // Until 0.3 magic alone said more of a value.
        self.extensions = match minor {
            4.. => lengths(cursor)?,
            _ => vec![Lengths {
                bytes: 2,
                addresses: 2,
                texts: 0,
            }],
        };
        self.contexts = lengths(cursor)?;
        match self.kinds.first() {
            Some(common) if common.bytes >= 20 && common.addresses >= 1 => Ok(()),
            _ => Err(cursor.wrong("what all values have is too short")),
        }
    }

    fn roots(&mut self) -> Result<(), Error> {
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
                "defstash" => (Phase::Symbols, "main::".to_string()),
                name => (Phase::Others, format!("(root {name})")),
            };
            self.values.add_root(phase, "", &name, address);
        }
        let count = cursor.count(8, "the stack")?;
        for _ in 0..count {
            let address = cursor.word("the stack")?;
            self.values
                .add_root(Phase::Others, "", "(root stack)", address);
        }
        Ok(())
    }

    /// Reads the next value, or what says more of one. Returns whether there was one.
    fn next(&mut self) -> Result<bool, Error> {
        let kind = self.cursor.byte("the list of values")?;
        match kind {
            0 => return Ok(false),
            STRUCTURE => self.structure()?,
            EXTENSIONS.. => self.extension(kind)?,
            kind => self.value(kind)?,
        }
        Ok(true)
    }

    /// What runs: subs, and texts that are evaluated. They hold their code and their arguments.
    fn contexts(&mut self) -> Result<(), Error> {
        loop {
            let kind = self.cursor.byte("what runs")?;
            if kind == 0 {
                return Ok(());
            }
            let common = self.contexts.first().copied().unwrap_or_default();
            self.parts(common)?;
            let Some(&lengths) = self.contexts.get(usize::from(kind)) else {
                return Err(self
                    .cursor
                    .wrong(&format!("a context of the unknown kind {kind}")));
            };
            for to in self.parts(lengths)?.addresses {
                self.values.add_root(Phase::Others, "", "(running)", to);
            }
        }
    }

    /// Values that Perl frees when the statement ends. Older files have none.
    fn mortals(&mut self) -> Result<(), Error> {
        if self.cursor.is_at_end() {
            return Ok(());
        }
        for _ in 0..self.cursor.count(8, "temporary values")? {
            let address = self.cursor.word("temporary values")?;
            self.values
                .add_root(Phase::Others, "", "(until the statement ends)", address);
        }
        Ok(())
    }

    fn parts(&mut self, lengths: Lengths) -> Result<Parts<'a>, Error> {
        let cursor = &mut self.cursor;
        let bytes = cursor.bytes(lengths.bytes, "a value")?;
        let addresses = (0..lengths.addresses).map(|_| cursor.word("a value"));
        let addresses = addresses.collect::<Result<_, _>>()?;
        let texts = (0..lengths.texts).map(|_| cursor.text("a value"));
        Ok(Parts {
            bytes,
            addresses,
            texts: texts.collect::<Result<_, _>>()?,
        })
    }

    /// The description of a structure of C's.
    fn structure(&mut self) -> Result<(), Error> {
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
                kind => return Err(cursor.wrong(&format!("a field of the unknown kind {kind}"))),
            };
            fields.push(Field { name, bytes });
        }
        self.structures.push((id, fields));
        Ok(())
    }

    /// What says more of a value that came before.
    fn extension(&mut self, kind: u8) -> Result<(), Error> {
        let Some(&lengths) = self.extensions.get(usize::from(kind - EXTENSIONS)) else {
            return Err(self
                .cursor
                .wrong(&format!("something of the unknown kind {kind:#x}")));
        };
        let of = self.cursor.word("a value")?;
        let parts = self.parts(lengths)?;
        let mut saved = |word| (self.values.named(word), true);
        let ways: Vec<(u64, (Step, bool))> = match kind - EXTENSIONS {
            0 => {
                let magic = Step::Magic(parts.byte(0));
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
                vec![(parts.address(0), (Step::Named(name), true))]
            }
            _ => Vec::new(),
        };
        for (to, (step, is_strong)) in ways {
            self.values.lead_later(of, to, step, is_strong);
        }
        Ok(())
    }

    fn value(&mut self, number: u8) -> Result<(), Error> {
        let common = self.parts(self.kinds[0])?;
        let mut value = Value {
            address: common.word(0),
            references: common.word(8) as u32,
            size: common.word(12),
            asked: common.word(12),
            class: common.address(0),
            ..Value::default()
        };
        // Sums of sizes are numbers of 63 bits.
        let total = self.total.checked_add(value.size);
        self.total = total
            .filter(|&total| i64::try_from(total).is_ok())
            .ok_or_else(|| {
                self.cursor
                    .wrong("the sizes of values are more than 63 bits")
            })?;
        if number == OF_STRUCTURE {
            // The place of the class says which structure it is.
            let which = std::mem::take(&mut value.class);
            value.kind = Kind::Structure;
            self.fields(which)?;
            self.values.end(value);
            return Ok(());
        }
        let Some(&lengths) = self.kinds.get(usize::from(number)) else {
            return Err(self
                .cursor
                .wrong(&format!("a value of the unknown kind {number}")));
        };
        let parts = self.parts(lengths)?;
        match number {
            1 => self.glob(&mut value, &parts),
            2 => value.kind = Kind::Scalar,
            3 => {
                value.kind = Kind::Reference;
                let is_strong = parts.byte(0) & 1 == 0;
                self.values
                    .lead_to(parts.address(0), Step::Referent, is_strong);
            }
            4 => self.array(&mut value, &parts)?,
            5 => self.hash(&mut value, Kind::Hash, &parts)?,
            6 => self.hash(&mut value, Kind::Stash, &parts)?,
            7 => self.code(&mut value, &parts)?,
            8 => {
                value.kind = Kind::Io;
                for &to in &parts.addresses {
                    let step = self.values.named("format");
                    self.values.lead_to(to, step, true);
                }
            }
            9 => {
                value.kind = Kind::Lvalue;
                self.values.lead_to(parts.address(0), Step::Target, true);
            }
            10 => value.kind = Kind::Regexp,
            11 => value.kind = Kind::Format,
            12 => value.kind = Kind::Invlist,
            13 => value.kind = Kind::Undefined,
            14 => value.kind = Kind::Yes,
            15 => value.kind = Kind::No,
            16 => self.object(&mut value, &parts)?,
            17 => self.hash(&mut value, Kind::Class, &parts)?,
            _ => {
                return Err(self
                    .cursor
                    .wrong(&format!("a value of the unknown kind {number}")));
            }
        }
        self.values.end(value);
        Ok(())
    }

    fn glob(&mut self, value: &mut Value, parts: &Parts<'_>) {
        value.kind = Kind::Glob;
        value.name = self.values.text_id(&parts.text(0));
        // Scalar, array, hash, code, handle, format; between them the symbol that it stands for.
        for (number, sigil) in [
            (1, b'$'),
            (2, b'@'),
            (3, b'%'),
            (4, b'&'),
            (6, b'*'),
            (7, b'*'),
        ] {
            let to = parts.address(number);
            self.values.lead_to(to, Step::Slot(sigil), true);
        }
    }

    fn array(&mut self, value: &mut Value, parts: &Parts<'_>) -> Result<(), Error> {
        value.kind = Kind::Array;
        let count = self.cursor.count_of(parts.word(0), 8, "an array")?;
        // Of those that are not real the elements are not counted as references.
        let is_strong = parts.byte(8) & 1 == 0;
        for number in 0..count {
            let to = self.cursor.word("an array")?;
            self.values
                .lead_to(to, Step::Element(number as u32), is_strong);
        }
        Ok(())
    }

    fn object(&mut self, value: &mut Value, parts: &Parts<'_>) -> Result<(), Error> {
        value.kind = Kind::Object;
        let count = self.cursor.count_of(parts.word(0), 8, "an object")?;
        for number in 0..count {
            let to = self.cursor.word("an object")?;
            self.values.lead_to(to, Step::Field(number as u32), true);
        }
        Ok(())
    }

    fn hash(&mut self, value: &mut Value, kind: Kind, parts: &Parts<'_>) -> Result<(), Error> {
        value.kind = kind;
        if kind.is_stash() {
            value.name = self.values.text_id(&parts.text(0));
            // The first address is of the list of what refers back here, which holds nothing.
            for &to in parts.addresses.iter().skip(1) {
                let step = self.values.named("method cache");
                self.values.lead_to(to, step, true);
            }
        }
        let backward = parts.address(0);
        let step = self.values.named("back references");
        self.values.lead_to(backward, step, true);
        let count = self.cursor.count_of(parts.word(0), 16, "a hash")?;
        for _ in 0..count {
            let key = self.cursor.text("a hash")?.unwrap_or_default();
            let key = self.values.text_id(&String::from_utf8_lossy(key));
            let to = self.cursor.word("a hash")?;
            self.values.lead_to(to, Step::Key(key), true);
        }
        Ok(())
    }

    fn fields(&mut self, which: u64) -> Result<(), Error> {
        let found = self.structures.iter().position(|(id, _)| *id == which);
        let Some(found) = found else {
            return Err(self
                .cursor
                .wrong(&format!("a structure of the unknown kind {which}")));
        };
        for field in &self.structures[found].1 {
            match field.bytes {
                Some(bytes) => drop(self.cursor.bytes(bytes, "a structure")?),
                None => {
                    let name = self.values.text_id(&field.name);
                    let to = self.cursor.word("a structure")?;
                    self.values.lead_to(to, Step::Named(name), true);
                }
            }
        }
        Ok(())
    }

    fn code(&mut self, value: &mut Value, parts: &Parts<'_>) -> Result<(), Error> {
        value.kind = Kind::Code;
        value.name = self.values.text_id(&parts.text(1));
        let flags = parts.byte(8);
        // The sub around it may hold this one, which then does not hold it.
        let is_outside_strong = flags & 0x08 == 0;
        let [_, _, outside, list, constant] = [0, 1, 2, 3, 4].map(|i| parts.address(i));
        self.values
            .lead_to(outside, Step::Outside, is_outside_strong);
        let step = self.values.named("pads");
        self.values.lead_to(list, step, true);
        self.values.lead_to(constant, Step::Constant, true);
        let mut pads = Pads::default();
        let what = "a sub";
        loop {
            match self.cursor.byte(what)? {
                0 => break,
                CONSTANT | 3 => {
                    let to = self.cursor.word(what)?;
                    self.values.lead_to(to, Step::Constant, true);
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
                    let step = self.values.named("names of variables");
                    self.values.lead_to(to, step, true);
                }
                8 => {
                    let depth = self.cursor.word(what)?;
                    let pad = self.cursor.word(what)?;
                    pads.pads.push(pad);
                    self.values.lead_to(pad, Step::Pad(depth as u32), true);
                }
                9 => drop(self.cursor.bytes(9, what)?),
                10 => drop(self.cursor.bytes(24, what)?),
                kind => {
                    return Err(self
                        .cursor
                        .wrong(&format!("a part of a sub of the unknown kind {kind}")));
                }
            }
        }
        if !pads.pads.is_empty() {
            self.pads.push(pads);
        }
        Ok(())
    }

    /// Gives the elements of pads the names of the variables that they are.
    fn name_pads(&mut self) {
        for pads in std::mem::take(&mut self.pads) {
            let names: HashMap<u64, TextId> = pads.names.into_iter().collect();
            for pad in pads.pads {
                self.values.rename_elements(pad, |place| {
                    let name = names.get(&place.into());
                    name.map_or(Step::Temporary, |&name| Step::Variable(name))
                });
            }
        }
    }
}

fn lengths(cursor: &mut Cursor<'_>) -> Result<Vec<Lengths>, Error> {
    let count = cursor.byte("its head")?;
    let one = |_| {
        let [bytes, addresses, texts] = *cursor.array("its head")?;
        Ok(Lengths {
            bytes: bytes.into(),
            addresses: addresses.into(),
            texts: texts.into(),
        })
    };
    (0..count).map(one).collect()
}
