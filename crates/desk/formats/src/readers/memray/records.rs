//! Reads the records of a capture of memray one by one, in all supported layouts.
//!
//! Numbers are often written as the difference from the last number of the same kind. From version
//! 12 on, a list of allocations refers to one of the last fifteen addresses by its position among
//! them.

use crate::bytes::BinaryReader;
use crate::error::FormatError;

use super::header::MemrayHeader;
use super::record::{MemrayAllocator, MemrayRecord, MemrayStackSum};

/// Maximum number of bytes of a name or a path.
const MAX_NAME_BYTES: usize = 1 << 20;
/// Maximum number of bytes of a function's line table.
const MAX_LINE_TABLE_BYTES: u64 = 16 << 20;

/// Reader of the records of a capture, from the current position on.
pub(super) struct MemrayRecords<'a> {
    bytes: BinaryReader<'a>,
    has_code: bool,
    is_aggregated: bool,
    is_native: bool,
    /// Beginning of the recording, in milliseconds since 1970.
    start: u64,
    /// Last line number. The next fields are the last address and the last frame. New numbers of
    /// each kind are written as differences from them.
    line: i64,
    pointer: u64,
    frame: u64,
    /// The last fifteen addresses, newest first.
    recent: [u64; 15],
}

impl<'a> MemrayRecords<'a> {
    pub(super) fn new(bytes: BinaryReader<'a>, header: &MemrayHeader) -> Self {
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

    /// Returns how many bytes were read.
    pub(super) fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    pub(super) fn next(&mut self) -> Result<MemrayRecord, FormatError> {
        let start = self.bytes.offset();
        let Some(kind) = self.bytes.next()? else {
            // A file with sums is written all at once when the program ends.
            return match self.is_aggregated {
                true => Err(self.bytes.ended("a record, or the end mark")),
                false => Ok(MemrayRecord::End { is_marked: false }),
            };
        };
        let record = match (self.is_aggregated, self.has_code) {
            (true, _) => self.sum_record(kind),
            (false, true) => self.event(kind),
            (false, false) => self.old_event(kind),
        };
        match record {
            // The program may have been killed while it wrote a record.
            Err(FormatError::Byte { .. })
                if !self.is_aggregated && self.bytes.next()?.is_none() =>
            {
                Ok(MemrayRecord::End { is_marked: false })
            }
            Ok(None) => Err(FormatError::Byte {
                offset: start,
                defect: format!(
                    "expected a memray record, found kind {kind}; copy or download it again"
                ),
            }),
            Ok(Some(record)) => Ok(record),
            Err(error) => Err(error),
        }
    }

    /// Reads a record of a list of allocations, in versions from 12 on; `None` if the kind does not
    /// exist.
    fn event(&mut self, kind: u8) -> Result<Option<MemrayRecord>, FormatError> {
        let record = match kind {
            1 => MemrayRecord::End { is_marked: true },
            2 => self.resident()?,
            14 => self.code()?,
            16..32 => MemrayRecord::Pop(u64::from(kind & 15) + 1),
            32..64 => {
                // The program starts or stops to track an object of Python.
                self.address(kind >> 1 & 15)?;
                if self.is_native && kind & 1 == 1 {
                    self.native_stack()?;
                }
                MemrayRecord::Other
            }
            64..128 => MemrayRecord::Push(
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
                MemrayRecord::Block {
                    address,
                    size,
                    allocator,
                }
            }
            other => return self.common(other),
        };
        Ok(Some(record))
    }

    /// Reads a record of a list of allocations, in versions up to 11. In its first byte, four bits
    /// are the kind, and four bits depend on the kind.
    fn old_event(&mut self, byte: u8) -> Result<Option<MemrayRecord>, FormatError> {
        let (kind, with) = (byte & 15, byte >> 4);
        let record = match kind {
            0 if with == 1 => MemrayRecord::End { is_marked: true },
            1 | 2 => {
                let allocator = match MemrayAllocator::from_old_number(with) {
                    Some(allocator) => allocator,
                    None => return Err(self.bytes.wrong("an allocator", with)),
                };
                let change = self.bytes.signed("an address")?;
                self.pointer = self.pointer.wrapping_add_signed(change);
                // With a native stack, every record contains a size.
                let size = match kind == 2 || allocator.has_size() {
                    true => self.bytes.varint("the size of a block")?,
                    false => 0,
                };
                if kind == 2 {
                    self.native_stack()?;
                }
                MemrayRecord::Block {
                    address: self.pointer,
                    size,
                    allocator,
                }
            }
            3 => MemrayRecord::Frame {
                id: self.old_frame()?,
                name: self.text("the name of a function")?,
                file: self.text("the file of a function")?,
                line: self.line()?,
            },
            4 => MemrayRecord::Push(self.old_frame()?, 0),
            9 => MemrayRecord::Pop(u64::from(with) + 1),
            11 => self.resident()?,
            other => return self.common(other),
        };
        Ok(Some(record))
    }

    /// Reads a record of a file with sums.
    fn sum_record(&mut self, kind: u8) -> Result<Option<MemrayRecord>, FormatError> {
        const EXPECTED_FRAME: &str = "a frame";
        let record = match kind {
            1 => {
                let [time, bytes, _heap] = self.words("a resident set")?;
                let time = time.saturating_sub(self.start);
                MemrayRecord::Resident { bytes, time }
            }
            2 => self.sum()?,
            3 if self.has_code => MemrayRecord::Stack {
                frame: self.bytes.varint("a frame")?,
                parent: self.bytes.varint("a stack")?,
            },
            3 => MemrayRecord::Stack {
                frame: self.bytes.u64("a frame")?,
                parent: self.bytes.u32("a stack")?.into(),
            },
            4 if self.has_code => {
                let record = MemrayRecord::NumberedFrame {
                    number: self.bytes.varint("a frame")?,
                    code: self.bytes.varint("a code object")?,
                    offset: self.bytes.signed("the offset of an instruction")?,
                };
                self.bytes.byte("a frame")?;
                record
            }
            4 => {
                let id = self.bytes.u64(EXPECTED_FRAME)?;
                let name = self.text("the name of a function")?;
                let file = self.text("the file of a function")?;
                let line = i32::from_le_bytes(self.bytes.array(EXPECTED_FRAME)?);
                self.bytes.byte(EXPECTED_FRAME)?;
                let line = i64::from(line);
                MemrayRecord::Frame {
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
                MemrayRecord::Other
            }
            14 if self.has_code => self.code()?,
            15 => MemrayRecord::End { is_marked: true },
            other => return self.common(other),
        };
        Ok(Some(record))
    }

    /// Reads a record of a kind that all layouts have.
    fn common(&mut self, kind: u8) -> Result<Option<MemrayRecord>, FormatError> {
        let record = match kind {
            5 => {
                self.bytes.signed("an address of native code")?;
                self.native_stack()?;
                MemrayRecord::Other
            }
            6 => MemrayRecord::Other,
            7 => {
                self.text("a library")?;
                self.bytes.varint("the number of segments")?;
                self.bytes.u64("the address of a library")?;
                MemrayRecord::Other
            }
            8 => {
                self.bytes.u64("the address of a segment")?;
                self.bytes.varint("the size of a segment")?;
                MemrayRecord::Other
            }
            10 => MemrayRecord::ThreadName(self.text("the name of a thread")?),
            12 => MemrayRecord::Thread(self.bytes.u64("a thread")?),
            _ => return Ok(None),
        };
        Ok(Some(record))
    }

    fn resident(&mut self) -> Result<MemrayRecord, FormatError> {
        Ok(MemrayRecord::Resident {
            bytes: self.bytes.varint("a resident set")?,
            time: self.bytes.varint("a time")?,
        })
    }

    fn code(&mut self) -> Result<MemrayRecord, FormatError> {
        let id = self.bytes.varint("a code object")?;
        let name = self.text("the name of a function")?;
        let file = self.text("the file of a function")?;
        let first_line = self.line()?;
        let what = "the table of a function's lines";
        let length = self.bytes.varint(what)?;
        Ok(MemrayRecord::Code {
            id,
            name,
            file,
            first_line,
            lines: self.bytes.take(length, MAX_LINE_TABLE_BYTES, what)?,
        })
    }

    fn sum(&mut self) -> Result<MemrayRecord, FormatError> {
        const EXPECTED_SUMS: &str = "the sums of a stack";
        let thread = self.bytes.u64(EXPECTED_SUMS)?;
        let [number, _padding @ ..] = self.bytes.array::<8>(EXPECTED_SUMS)?;
        let allocator = match self.has_code {
            true => self.allocator(number)?,
            false => MemrayAllocator::from_old_number(number)
                .ok_or_else(|| self.bytes.wrong("an allocator", number))?,
        };
        let [_native, stack, _generation] = self.words(EXPECTED_SUMS)?;
        let [peak_blocks, held_blocks, peak_bytes, held_bytes] = self.words(EXPECTED_SUMS)?;
        Ok(MemrayRecord::Sum(MemrayStackSum {
            thread,
            allocator,
            stack,
            peak: [peak_blocks, peak_bytes],
            in_use: [held_blocks, held_bytes],
        }))
    }

    fn words<const N: usize>(&mut self, what: &str) -> Result<[u64; N], FormatError> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.bytes.u64(what)?;
        }
        Ok(words)
    }

    /// Reads an address: the entry at `place` of the recent addresses, or a new address if there is
    /// no such entry. Addresses are multiples of 8.
    fn address(&mut self, place: u8) -> Result<u64, FormatError> {
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

    fn allocator(&self, number: u8) -> Result<MemrayAllocator, FormatError> {
        MemrayAllocator::from_number(number).ok_or_else(|| self.bytes.wrong("an allocator", number))
    }

    /// Skips the number of a native stack.
    fn native_stack(&mut self) -> Result<(), FormatError> {
        self.bytes.signed("a native stack").map(|_| ())
    }

    fn old_frame(&mut self) -> Result<u64, FormatError> {
        let change = self.bytes.signed("a frame")?;
        self.frame = self.frame.wrapping_add_signed(change);
        Ok(self.frame)
    }

    fn line(&mut self) -> Result<i64, FormatError> {
        let change = self.bytes.signed("a line")?;
        self.line = self.line.wrapping_add(change);
        Ok(self.line)
    }

    fn text(&mut self, what: &str) -> Result<Vec<u8>, FormatError> {
        self.bytes.until(b'\0', MAX_NAME_BYTES, what)
    }
}
