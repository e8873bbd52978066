//! The records of a capture of memray, one after the other, in all layouts that are read.
//!
//! Numbers are often written as the difference from the last number of their kind. A list of
//! allocations says again which of the last fifteen addresses is meant, from version 12 on.

use crate::bytes::Bytes;
use crate::error::Error;

use super::header::Header;
use super::record::{Allocator, Record, Sum};

/// The most bytes of a name or a path.
const LONGEST: usize = 1 << 20;
/// The most bytes of the table of a function's lines.
const LONGEST_TABLE: u64 = 16 << 20;

/// The records that are still to come.
pub(super) struct Records<'a> {
    bytes: Bytes<'a>,
    has_code: bool,
    is_aggregated: bool,
    is_native: bool,
    /// When the recording began, in milliseconds since 1970.
    start: u64,
    /// The last number of each kind.
    line: i64,
    pointer: u64,
    frame: u64,
    /// The last addresses, newest first.
    recent: [u64; 15],
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: Bytes<'a>, header: &Header) -> Self {
        Self {
            bytes,
            has_code: header.has_code(),
            is_aggregated: header.is_aggregated,
            is_native: header.is_native,
            start: header.start.unsigned_abs(),
            line: 0,
            pointer: 0,
            frame: 0,
            recent: [0; 15],
        }
    }

    /// How many bytes were read.
    pub(super) fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    pub(super) fn next(&mut self) -> Result<Record, Error> {
        let start = self.bytes.offset();
        let Some(kind) = self.bytes.next()? else {
            // A file with sums is written at the end, all at once.
            return match self.is_aggregated {
                true => Err(self.bytes.ended("a record, or the end mark")),
                false => Ok(Record::End { is_marked: false }),
            };
        };
        let record = match (self.is_aggregated, self.has_code) {
            (true, _) => self.sum_record(kind),
            (false, true) => self.event(kind),
            (false, false) => self.old_event(kind),
        };
        match record {
            // The program may be killed while it writes a record.
            Err(Error::Byte { .. }) if !self.is_aggregated && self.bytes.next()?.is_none() => {
                Ok(Record::End { is_marked: false })
            }
            Ok(None) => Err(Error::Byte {
                offset: start,
                defect: format!(
                    "expected a record of memray, found kind {kind}; copy or download it again"
                ),
            }),
            Ok(Some(record)) => Ok(record),
            Err(error) => Err(error),
        }
    }

    /// A record of a list, from version 12 on. `None` if there is no such kind.
    fn event(&mut self, kind: u8) -> Result<Option<Record>, Error> {
        let record = match kind {
            1 => Record::End { is_marked: true },
            2 => self.resident()?,
            14 => self.code()?,
            16..32 => Record::Pop(u64::from(kind & 15) + 1),
            32..64 => {
                // An object of Python begins or ends.
                self.address(kind >> 1 & 15)?;
                if self.is_native && kind & 1 == 1 {
                    self.native_stack()?;
                }
                Record::Other
            }
            64..128 => Record::Push(
                self.bytes.varint("a code object")?,
                self.bytes.signed("the offset of an instruction")?,
            ),
            128.. => {
                let address = self.address(kind >> 3 & 15)?;
                let number = match kind & 7 {
                    0 => self.bytes.byte("an allocator")?,
                    number => number,
                };
                let allocator = self.allocator(number)?;
                let mut size = 0;
                if allocator.has_size() {
                    if self.is_native {
                        self.native_stack()?;
                    }
                    size = self.bytes.varint("the size of a block")?;
                }
                Record::Block {
                    address,
                    size,
                    allocator,
                }
            }
            other => return self.common(other),
        };
        Ok(Some(record))
    }

    /// A record of a list, up to version 11: four bits for the kind, and four bits with it.
    fn old_event(&mut self, byte: u8) -> Result<Option<Record>, Error> {
        let (kind, with) = (byte & 15, byte >> 4);
        let record = match kind {
            0 if with == 1 => Record::End { is_marked: true },
            1 | 2 => {
                let allocator = match Allocator::of_old(with) {
                    Some(allocator) => allocator,
                    None => return Err(self.bytes.wrong("an allocator", with)),
                };
                let change = self.bytes.signed("an address")?;
                self.pointer = self.pointer.wrapping_add_signed(change);
                // With a native stack, every record has a size.
                let size = match kind == 2 || allocator.has_size() {
                    true => self.bytes.varint("the size of a block")?,
                    false => 0,
                };
                if kind == 2 {
                    self.native_stack()?;
                }
                Record::Block {
                    address: self.pointer,
                    size,
                    allocator,
                }
            }
            3 => Record::Frame {
                id: self.old_frame()?,
                name: self.text("the name of a function")?,
                file: self.text("the file of a function")?,
                line: self.line()?,
            },
            4 => Record::Push(self.old_frame()?, 0),
            9 => Record::Pop(u64::from(with) + 1),
            11 => self.resident()?,
            other => return self.common(other),
        };
        Ok(Some(record))
    }

    /// A record of a file with sums.
    fn sum_record(&mut self, kind: u8) -> Result<Option<Record>, Error> {
        const OLD: &str = "a frame";
        let record = match kind {
            1 => {
                let [time, bytes, _heap] = self.words("a resident set")?;
                let time = time.saturating_sub(self.start);
                Record::Resident { bytes, time }
            }
            2 => self.sum()?,
            3 if self.has_code => Record::Stack {
                frame: self.bytes.varint("a frame")?,
                parent: self.bytes.varint("a stack")?,
            },
            3 => Record::Stack {
                frame: self.bytes.u64("a frame")?,
                parent: self.bytes.u32("a stack")?.into(),
            },
            4 if self.has_code => {
                let record = Record::NumberedFrame {
                    number: self.bytes.varint("a frame")?,
                    code: self.bytes.varint("a code object")?,
                    offset: self.bytes.signed("the offset of an instruction")?,
                };
                self.bytes.byte("a frame")?;
                record
            }
            4 => {
                let id = self.bytes.u64(OLD)?;
                let name = self.text("the name of a function")?;
                let file = self.text("the file of a function")?;
                let line = i32::from_le_bytes(self.bytes.array(OLD)?);
                self.bytes.byte(OLD)?;
                let line = i64::from(line);
                Record::Frame {
                    id,
                    name,
                    file,
                    line,
                }
            }
            13 if self.has_code => {
                self.bytes.varint("an object")?;
                if self.is_native {
                    self.bytes.varint("a native stack")?;
                }
                Record::Other
            }
            14 if self.has_code => self.code()?,
            15 => Record::End { is_marked: true },
            other => return self.common(other),
        };
        Ok(Some(record))
    }

    /// A record that all layouts have.
    fn common(&mut self, kind: u8) -> Result<Option<Record>, Error> {
        let record = match kind {
            5 => {
                self.bytes.signed("an address of native code")?;
                self.native_stack()?;
                Record::Other
            }
            6 => Record::Other,
            7 => {
                self.text("a library")?;
                self.bytes.varint("the number of segments")?;
                self.bytes.u64("the address of a library")?;
                Record::Other
            }
            8 => {
                self.bytes.u64("the address of a segment")?;
                self.bytes.varint("the size of a segment")?;
                Record::Other
            }
            10 => Record::ThreadName(self.text("the name of a thread")?),
            12 => Record::Thread(self.bytes.u64("a thread")?),
            _ => return Ok(None),
        };
        Ok(Some(record))
    }

    fn resident(&mut self) -> Result<Record, Error> {
        Ok(Record::Resident {
            bytes: self.bytes.varint("a resident set")?,
            time: self.bytes.varint("a time")?,
        })
    }

    fn code(&mut self) -> Result<Record, Error> {
        let id = self.bytes.varint("a code object")?;
        let name = self.text("the name of a function")?;
        let file = self.text("the file of a function")?;
        let first_line = self.line()?;
        let what = "the table of a function's lines";
        let length = self.bytes.varint(what)?;
        Ok(Record::Code {
            id,
            name,
            file,
            first_line,
            lines: self.bytes.take(length, LONGEST_TABLE, what)?,
        })
    }

    fn sum(&mut self) -> Result<Record, Error> {
        const WHAT: &str = "the sums of a stack";
        let thread = self.bytes.u64(WHAT)?;
        let [number, _padding @ ..] = self.bytes.array::<8>(WHAT)?;
        let allocator = match self.has_code {
            true => self.allocator(number)?,
            false => {
                Allocator::of_old(number).ok_or_else(|| self.bytes.wrong("an allocator", number))?
            }
        };
        let [_native, stack, _generation] = self.words(WHAT)?;
        let [peak_blocks, held_blocks, peak_bytes, held_bytes] = self.words(WHAT)?;
        Ok(Record::Sum(Sum {
            thread,
            allocator,
            stack,
            peak: [peak_blocks, peak_bytes],
            held: [held_blocks, held_bytes],
        }))
    }

    fn words<const N: usize>(&mut self, what: &str) -> Result<[u64; N], Error> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.bytes.u64(what)?;
        }
        Ok(words)
    }

    /// An address: the one at a place of the last ones, or a new one. Addresses are multiples of 8.
    fn address(&mut self, place: u8) -> Result<u64, Error> {
        if let Some(&known) = self.recent.get(usize::from(place)) {
            return Ok(known);
        }
        let change = self.bytes.signed("an address")?;
        self.pointer = self.pointer.wrapping_add_signed(change);
        let address = self.pointer << 3;
        self.recent.rotate_right(1);
        self.recent[0] = address;
        Ok(address)
    }

    fn allocator(&self, number: u8) -> Result<Allocator, Error> {
        Allocator::of(number).ok_or_else(|| self.bytes.wrong("an allocator", number))
    }

    /// Reads past the number of a native stack.
    fn native_stack(&mut self) -> Result<(), Error> {
        self.bytes.signed("a native stack").map(|_| ())
    }

    fn old_frame(&mut self) -> Result<u64, Error> {
        let change = self.bytes.signed("a frame")?;
        self.frame = self.frame.wrapping_add_signed(change);
        Ok(self.frame)
    }

    fn line(&mut self) -> Result<i64, Error> {
        let change = self.bytes.signed("a line")?;
        self.line = self.line.wrapping_add(change);
        Ok(self.line)
    }

    fn text(&mut self, what: &str) -> Result<Vec<u8>, Error> {
        self.bytes.until(b'\0', LONGEST, what)
    }
}
