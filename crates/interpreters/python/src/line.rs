//! Finds the line of an instruction in a code object's line table.
//!
//! The formats are those of CPython's `Objects/lnotab_notes.txt` (3.8 to 3.10) and
//! `InternalDocs/code_objects.md` (from 3.11 on).

use heapprof_memory::Memory;

use crate::layout::LineTableFormat;

/// Reads a line table byte by byte. The memory is read in larger parts.
struct LineTableReader<M> {
    memory: M,
    at: u64,
    left: u64,
    part: [u8; 64],
    next: usize,
    len: usize,
}

impl<M: Memory> LineTableReader<M> {
    fn new(memory: M, at: u64, left: u64) -> Self {
        Self {
            memory,
            at,
            left,
            part: [0; 64],
            next: 0,
            len: 0,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        if self.next == self.len {
            let len = self.left.min(self.part.len() as u64);
            let part = &mut self.part[..len as usize];
            if len == 0 || !self.memory.read(self.at, part) {
                return None;
            }
            (self.at, self.left) = (self.at + len, self.left - len);
            (self.next, self.len) = (0, len as usize);
        }
        self.next += 1;
        Some(self.part[self.next - 1])
    }

    /// Returns the number of bytes of the table that were not read yet.
    fn bytes_left(&self) -> u64 {
        self.left + (self.len - self.next) as u64
    }

    /// Reads a number of variable length: six bits in each byte, the lowest bits first.
    fn varint(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 63).checked_shl(shift)?;
            if byte & 64 == 0 {
                return Some(value);
            }
            shift += 6;
        }
    }
}

/// The code object to which a line table belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct LineTableOwner {
    pub(crate) code: u64,
    /// A number that distinguishes the code from other code that was at the same address. Code
    /// objects with equal addresses, first lines and versions count as equal.
    pub(crate) version: u32,
    pub(crate) first_line: u32,
}

/// The position up to which a line table was read. A later search continues from there, because a
/// table can only be read from its beginning. All zeros if no table was read.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct LineTableProgress {
    /// Address of the table.
    table: u64,
    len: u64,
    owner: LineTableOwner,
    /// The number of bytes that were not read yet.
    left: u64,
    /// The line of the part that was read last.
    line: i64,
    /// The end of the part that was read last, in units.
    end: i64,
}

/// Finds the line of an instruction in a line table of `len` bytes at `at`. `unit` is the number of
/// the instruction, in units of two bytes. Returns `None` if the instruction has no line. For a
/// negative `unit`, returns the function's first line.
pub(crate) fn line_of<M: Memory>(
    memory: M,
    form: LineTableFormat,
    (at, len): (u64, u64),
    owner: LineTableOwner,
    unit: i64,
    reached: &mut LineTableProgress,
) -> Option<u32> {
    if unit < 0 {
        return Some(owner.first_line);
    }
    let wanted = match form {
        LineTableFormat::Entries => unit,
        LineTableFormat::Pairs | LineTableFormat::Ends => 2 * unit,
    };
    let is_of_table = (reached.table, reached.len, reached.owner) == (at, len, owner)
        && (0..=wanted).contains(&reached.end)
        && reached.left <= len;
    if !is_of_table {
        *reached = LineTableProgress {
            table: at,
            len,
            owner,
            left: len,
            line: owner.first_line.into(),
            end: 0,
        };
    }
    let LineTableProgress {
        left,
        mut line,
        mut end,
        ..
    } = *reached;
    let mut table = LineTableReader::new(memory, at + (len - left), left);
    loop {
        (reached.left, reached.line, reached.end) = (table.bytes_left(), line, end);
        let part = match form {
            LineTableFormat::Pairs => read_pair(&mut table),
            LineTableFormat::Ends => read_range(&mut table),
            LineTableFormat::Entries => read_entry(&mut table),
        };
        let (units, lines, has_line) = match (part, form) {
            (Some(part), _) => part,
            // The last line that begins at or before the instruction goes on to the end.
            (None, LineTableFormat::Pairs) => return u32::try_from(line).ok(),
            (None, _) => return None,
        };
        end += units;
        if form == LineTableFormat::Pairs {
            if end > wanted {
                return u32::try_from(line).ok();
            }
            line += lines;
            continue;
        }
        line += lines;
        if end > wanted {
            return has_line.then(|| u32::try_from(line).ok())?;
        }
    }
}

/// A part of a line table: its number of units, the difference of its line from the previous line,
/// and whether it has a line.
type LineTablePart = (i64, i64, bool);

#[inline(always)]
fn read_pair<M: Memory>(table: &mut LineTableReader<M>) -> Option<LineTablePart> {
    let (bytes, lines) = (table.byte()?, table.byte()? as i8);
    Some((bytes.into(), lines.into(), true))
}

#[inline(always)]
fn read_range<M: Memory>(table: &mut LineTableReader<M>) -> Option<LineTablePart> {
    let (bytes, lines) = (table.byte()?, table.byte()? as i8);
    let has_line = lines != i8::MIN;
    Some((
        bytes.into(),
        if has_line { lines.into() } else { 0 },
        has_line,
    ))
}

#[inline(always)]
fn read_entry<M: Memory>(table: &mut LineTableReader<M>) -> Option<LineTablePart> {
    let byte = table.byte()?;
    let units = i64::from(byte & 7) + 1;
    let lines = match byte >> 3 & 15 {
        15 => return Some((units, 0, false)),
        kind @ (13 | 14) => {
            let value = table.varint()?;
            for _ in 0..if kind == 14 { 3 } else { 0 } {
                table.varint()?;
            }
            let lines = (value >> 1) as i64;
            if value & 1 == 1 { -lines } else { lines }
        }
        kind @ 10..=12 => {
            table.byte()?;
            table.byte()?;
            i64::from(kind) - 10
        }
        _ => {
            table.byte()?;
            0
        }
    };
    Some((units, lines, true))
}

#[cfg(test)]
mod tests;
