//! Reads the part of Python's pickle format that snapshots of tracemalloc use.
//!
//! A pickle is a program for a small machine with a stack, which can call any function of Python.
//! `Lib/pickletools.py` describes its instructions. This reader knows only the instructions that
//! combine numbers, texts, tuples, lists and the two classes of a snapshot. Nothing is called, and
//! a pickle with any other instruction or class is refused.

use std::hash::Hash;

use heapprof_profile::Error as ProfileError;

use crate::bytes::BinaryReader;
use crate::error::{FormatError, shortened};
use crate::tally::overflow;
use crate::texts::TextTable;

/// Maximum number of bytes of a text.
const MAX_TEXT_BYTES: u64 = 64 << 10;
/// Number of bytes that are read between two checks of the memory limit.
const MEMORY_CHECK_INTERVAL: u64 = 64 << 10;

/// A class of Python's module tracemalloc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PickleClass {
    Snapshot,
    Traces,
}

/// A value on the stack of the machine that executes a pickle. Texts, lists, dictionaries and
/// objects are positions in the tables of [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PickleValue {
    None,
    Int(i64),
    Text(u32),
    /// Position of the first item of a tuple, and the number of items.
    Tuple(u32, u32),
    List(u32),
    Dictionary(u32),
    Class(PickleClass),
    Object(u32),
    /// A mark on the stack, which begins a group of values.
    Mark,
}

/// All values that the pickle's instructions have made.
#[derive(Default)]
pub(super) struct Pickle {
    texts: TextTable,
    /// The items of all tuples.
    items: Vec<PickleValue>,
    lists: Vec<Vec<PickleValue>>,
    /// Total number of items of all lists and dictionaries.
    in_lists: usize,
    dictionaries: Vec<Vec<(PickleValue, PickleValue)>>,
    /// Class of each object, and the position of its attributes in `dictionaries` after they are
    /// set.
    objects: Vec<(PickleClass, Option<u32>)>,
}

impl Pickle {
    /// Returns the items of a tuple or list.
    pub(super) fn items(&self, value: PickleValue) -> Option<&[PickleValue]> {
        match value {
            PickleValue::Tuple(start, length) => {
                self.items.get(start as usize..)?.get(..length as usize)
            }
            PickleValue::List(list) => self.lists.get(list as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Returns an attribute of an object if the object is of this class.
    pub(super) fn attribute(
        &self,
        object: PickleValue,
        class: PickleClass,
        name: &str,
    ) -> Option<PickleValue> {
        let PickleValue::Object(object) = object else {
            return None;
        };
        let &(_, attributes) = self
            .objects
            .get(object as usize)
            .filter(|(c, _)| *c == class)?;
        let attributes = self.dictionaries.get(attributes? as usize)?;
        let mut named = attributes.iter().rev().filter(|(key, _)| match key {
            PickleValue::Text(key) => self.text(*key) == name,
            _ => false,
        });
        named.next().map(|&(_, value)| value)
    }

    /// Returns the text at this position.
    pub(super) fn text(&self, text: u32) -> &str {
        self.texts.get(text).unwrap_or("")
    }

    fn memory(&self) -> u64 {
        let values = self.items.capacity() + 2 * self.in_lists;
        let tables = values * size_of::<PickleValue>()
            + self.lists.capacity() * size_of::<Vec<PickleValue>>()
            + self.dictionaries.capacity() * 3 * size_of::<Vec<PickleValue>>()
            + self.objects.capacity() * size_of::<(PickleClass, Option<u32>)>();
        tables as u64 + self.texts.memory()
    }
}

/// Reads a pickle to its end. Returns all values that were made, and the result.
pub(super) fn read(
    bytes: &mut BinaryReader<'_>,
    limit: u64,
) -> Result<(Pickle, PickleValue), FormatError> {
    let mut machine = PickleMachine {
        bytes,
        made: Pickle::default(),
        stack: Vec::new(),
        memo: Vec::new(),
    };
    let mut look_at = MEMORY_CHECK_INTERVAL;
    loop {
        if let Some(top) = machine.step()? {
            return Ok((machine.made, top));
        }
        let offset = machine.bytes.offset();
        if offset >= look_at {
            look_at = offset + MEMORY_CHECK_INTERVAL;
            let values = machine.stack.capacity() + machine.memo.capacity();
            let memory = (values * size_of::<PickleValue>()) as u64 + machine.made.memory();
            if memory > limit {
                return Err(ProfileError::TooMuchMemory { limit }.into());
            }
        }
    }
}

struct PickleMachine<'a, 'b> {
    bytes: &'a mut BinaryReader<'b>,
    made: Pickle,
    stack: Vec<PickleValue>,
    memo: Vec<PickleValue>,
}

/// Description of a valid instruction, for errors.
const EXPECTED_INSTRUCTION: &str = "an instruction of the pickle";

impl PickleMachine<'_, '_> {
    /// Executes one instruction. Returns the result of the pickle after the last instruction,
    /// otherwise `None`.
    fn step(&mut self) -> Result<Option<PickleValue>, FormatError> {
        const EXPECTED_TEXT: &str = "a string in the pickle";
        let instruction = self.bytes.byte(EXPECTED_INSTRUCTION)?;
        let value = match instruction {
            // The version, and the length of the following part.
            0x80 => return self.version(),
            0x95 => return self.bytes.u64(EXPECTED_INSTRUCTION).map(|_| None),
            b'.' => {
                let top = self.pop("something before the end")?;
                return match self.bytes.next()? {
                    None => Ok(Some(top)),
                    Some(_) => Err(self.bytes.wrong("the end of the file", "more")),
                };
            }
            b'(' => PickleValue::Mark,
            b'N' => PickleValue::None,
            b'K' => PickleValue::Int(self.bytes.byte(EXPECTED_INSTRUCTION)?.into()),
            b'M' => {
                PickleValue::Int(u16::from_le_bytes(self.bytes.array(EXPECTED_INSTRUCTION)?).into())
            }
            b'J' => {
                PickleValue::Int(i32::from_le_bytes(self.bytes.array(EXPECTED_INSTRUCTION)?).into())
            }
            0x8a => self.long()?,
            0x8c => {
                let length = self.bytes.byte(EXPECTED_TEXT)?;
                self.text(length.into())?
            }
            b'X' => {
                let length = self.bytes.u32(EXPECTED_TEXT)?;
                self.text(length.into())?
            }
            0x8d => {
                let length = self.bytes.u64(EXPECTED_TEXT)?;
                self.text(length)?
            }
            b')' => self.tuple(self.stack.len())?,
            0x85..=0x87 => {
                let start = self
                    .stack
                    .len()
                    .checked_sub(usize::from(instruction - 0x84));
                let start = start.ok_or_else(|| self.lacks("the items of a tuple"))?;
                self.tuple(start)?
            }
            b't' => {
                let mark = self.mark()?;
                let tuple = self.tuple(mark + 1)?;
                self.stack.truncate(mark);
                tuple
            }
            b']' => {
                self.made.lists.push(Vec::new());
                PickleValue::List(place(self.made.lists.len())?)
            }
            b'}' => {
                self.made.dictionaries.push(Vec::new());
                PickleValue::Dictionary(place(self.made.dictionaries.len())?)
            }
            b'a' | b'e' => return self.append(instruction == b'e').map(|()| None),
            b's' | b'u' => return self.set(instruction == b'u').map(|()| None),
            b'q' => {
                let number = self.bytes.byte(EXPECTED_INSTRUCTION)?;
                return self.put(number.into()).map(|()| None);
            }
            b'r' => {
                let number = self.bytes.u32(EXPECTED_INSTRUCTION)?;
                return self.put(number).map(|()| None);
            }
            0x94 => return self.put(place(self.memo.len() + 1)?).map(|()| None),
            b'h' => {
                let number = self.bytes.byte(EXPECTED_INSTRUCTION)?;
                self.get(number.into())?
            }
            b'j' => {
                let number = self.bytes.u32(EXPECTED_INSTRUCTION)?;
                self.get(number)?
            }
            b'c' => {
                let module = self
                    .bytes
                    .until(b'\n', MAX_TEXT_BYTES as usize, "a module")?;
                let name = self
                    .bytes
                    .until(b'\n', MAX_TEXT_BYTES as usize, "a class")?;
                self.class(&module, &name)?
            }
            0x93 => {
                let (name, module) = (self.pop("a class")?, self.pop("a module")?);
                match (module, name) {
                    (PickleValue::Text(module), PickleValue::Text(name)) => {
                        let text = |number| self.made.text(number).as_bytes().to_vec();
                        self.class(&text(module), &text(name))?
                    }
                    _ => return Err(self.lacks("the name of a class")),
                }
            }
            0x81 => match (self.pop("arguments")?, self.pop("a class")?) {
                (PickleValue::Tuple(_, 0), PickleValue::Class(class)) => {
                    self.made.objects.push((class, None));
                    PickleValue::Object(place(self.made.objects.len())?)
                }
                _ => return Err(self.lacks("a class of tracemalloc")),
            },
            b'b' => return self.build().map(|()| None),
            other => {
                let found = match other.is_ascii_graphic() {
                    true => format!("{:?}", char::from(other)),
                    false => format!("{other:#04x}"),
                };
                return Err(self.bytes.wrong(
                    "an instruction that a tracemalloc snapshot has",
                    format!("{found}; heapprof does not execute pickles"),
                ));
            }
        };
        self.stack.push(value);
        Ok(None)
    }

    fn version(&mut self) -> Result<Option<PickleValue>, FormatError> {
        match self.bytes.byte(EXPECTED_INSTRUCTION)? {
            2..=5 => Ok(None),
            other => Err(self.bytes.wrong("a pickle of protocol 2 to 5", other)),
        }
    }

    /// Reads a whole number, whose length in bytes comes first.
    fn long(&mut self) -> Result<PickleValue, FormatError> {
        let length = self.bytes.byte(EXPECTED_INSTRUCTION)?;
        let bytes = self
            .bytes
            .take(length.into(), 8, "a number that fits in 64 bits")?;
        let negative = bytes.last().is_some_and(|&last| last >= 0x80);
        let mut all = [if negative { 0xff } else { 0 }; 8];
        all[..bytes.len()].copy_from_slice(&bytes);
        Ok(PickleValue::Int(i64::from_le_bytes(all)))
    }

    fn text(&mut self, length: u64) -> Result<PickleValue, FormatError> {
        let text = self
            .bytes
            .take(length, MAX_TEXT_BYTES, "a string in the pickle")?;
        let number = self.made.texts.intern(&String::from_utf8_lossy(&text));
        Ok(PickleValue::Text(number.ok_or_else(|| overflow("texts"))?))
    }

    /// Makes a tuple of the values on the stack from `start` on.
    fn tuple(&mut self, start: usize) -> Result<PickleValue, FormatError> {
        if self.stack[start..].contains(&PickleValue::Mark) {
            return Err(self.lacks("the items of a tuple"));
        }
        let first = u32::try_from(self.made.items.len());
        let length = u32::try_from(self.stack.len() - start);
        let (Ok(first), Ok(length)) = (first, length) else {
            return Err(overflow("the items of tuples"));
        };
        self.made.items.extend(self.stack.drain(start..));
        Ok(PickleValue::Tuple(first, length))
    }

    /// Returns the position of the last mark on the stack.
    fn mark(&self) -> Result<usize, FormatError> {
        let mark = self
            .stack
            .iter()
            .rposition(|&value| value == PickleValue::Mark);
        mark.ok_or_else(|| self.lacks("a mark"))
    }

    /// Finds the values on the stack that are to be added to a container. Returns the position of
    /// the first value, and the container, which is below it. If `many`, the values are all values
    /// since the mark, otherwise the last `count` values.
    fn added(&self, many: bool, count: usize) -> Result<(usize, Option<PickleValue>), FormatError> {
        let start = match many {
            true => self.mark()?,
            false => self.stack.len().saturating_sub(count),
        };
        let below = start.checked_sub(1).and_then(|below| self.stack.get(below));
        Ok((start, below.copied()))
    }

    /// Appends the last value on the stack to a list. If `many`, appends all values since the mark.
    fn append(&mut self, many: bool) -> Result<(), FormatError> {
        let (start, Some(PickleValue::List(list))) = self.added(many, 1)? else {
            return Err(self.lacks("a list"));
        };
        let items = self.stack.drain(start..).skip(usize::from(many));
        if let Some(list) = self.made.lists.get_mut(list as usize) {
            let before = list.len();
            list.extend(items);
            self.made.in_lists += list.len() - before;
        }
        Ok(())
    }

    /// Sets a key of a dictionary to a value, both from the top of the stack. If `many`, sets all
    /// pairs since the mark.
    fn set(&mut self, many: bool) -> Result<(), FormatError> {
        let (start, Some(PickleValue::Dictionary(dictionary))) = self.added(many, 2)? else {
            return Err(self.lacks("a dictionary"));
        };
        let items: Vec<PickleValue> = self.stack.drain(start..).skip(usize::from(many)).collect();
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.lacks("a key and a value"));
        }
        self.made.in_lists += items.len();
        if let Some(dictionary) = self.made.dictionaries.get_mut(dictionary as usize) {
            dictionary.extend(pairs.iter().map(|&[key, value]| (key, value)));
        }
        Ok(())
    }

    /// Stores the top of the stack in the memo under this number, which must be the next one.
    fn put(&mut self, number: u32) -> Result<(), FormatError> {
        if number as usize != self.memo.len() {
            let expected = format!("memo number {}", self.memo.len());
            return Err(self.bytes.wrong(&expected, number));
        }
        match self.stack.last() {
            Some(&value) if value != PickleValue::Mark => {
                self.memo.push(value);
                Ok(())
            }
            _ => Err(self.lacks("a value for the memo")),
        }
    }

    fn get(&self, number: u32) -> Result<PickleValue, FormatError> {
        self.memo.get(number as usize).copied().ok_or_else(|| {
            let expected = format!("a memo number below {}", self.memo.len());
            self.bytes.wrong(&expected, number)
        })
    }

    fn class(&self, module: &[u8], name: &[u8]) -> Result<PickleValue, FormatError> {
        match (module, name) {
            (b"tracemalloc", b"Snapshot") => Ok(PickleValue::Class(PickleClass::Snapshot)),
            (b"tracemalloc", b"_Traces") => Ok(PickleValue::Class(PickleClass::Traces)),
            _ => {
                let found = shortened(&[module, b".", name].concat());
                Err(self.bytes.wrong(
                    "a class that a snapshot has, tracemalloc.Snapshot or tracemalloc._Traces",
                    format!("{found}; heapprof does not execute pickles"),
                ))
            }
        }
    }

    /// Sets the attributes of an object.
    fn build(&mut self) -> Result<(), FormatError> {
        let attributes = self.pop("attributes")?;
        match (attributes, self.stack.last()) {
            (PickleValue::Dictionary(attributes), Some(&PickleValue::Object(object))) => {
                if let Some((_, known)) = self.made.objects.get_mut(object as usize) {
                    *known = Some(attributes);
                }
                Ok(())
            }
            _ => Err(self.lacks("an object and its attributes")),
        }
    }

    fn pop(&mut self, what: &str) -> Result<PickleValue, FormatError> {
        self.stack.pop().ok_or_else(|| self.lacks(what))
    }

    /// Makes an error for an instruction that needs a value that is not on the stack.
    fn lacks(&self, what: &str) -> FormatError {
        self.bytes.wrong(
            &format!("{what} on the stack of the pickle"),
            "something else",
        )
    }
}

/// Returns the position of the last of `count` entries as 32 bits.
fn place(count: usize) -> Result<u32, FormatError> {
    u32::try_from(count - 1).map_err(|_| overflow("the pickle's objects"))
}
