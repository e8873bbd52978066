//! The line of an instruction, from a code object's table of lines.
//!
//! The forms are those of CPython's `Objects/lnotab_notes.txt` (3.8 to 3.10) and
//! `InternalDocs/code_objects.md` (from 3.11 on).

use heapprof_memory::Memory;

use crate::layout::Lines;

/// Reads a table byte by byte, in parts.
struct Table<M> {
    memory: M,
    at: u64,
    left: u64,
    part: [u8; 64],
    next: usize,
    len: usize,
}

impl<M: Memory> Table<M> {
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

    /// How many bytes are left.
    fn left(&self) -> u64 {
        self.left + (self.len - self.next) as u64
    }

    /// A number of as many bytes as it needs, six bits each, the lowest first.
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

/// The code whose lines are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Owner {
    pub(crate) code: u64,
    /// Another one if other code came to the same address. Its table may have come, too: as with
    /// a frame's texts, code that has this in common with other code is taken for it.
    pub(crate) version: u32,
    pub(crate) first_line: u32,
}

/// How far a table was read. Code that runs forward has its lines found from there, because a table
/// can only be read from its begin. All zero is no table.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Reached {
    /// The table, and whose it is.
    table: u64,
    len: u64,
    owner: Owner,
    /// How many bytes were left, and the line and the end of the part before.
    left: u64,
    line: i64,
    end: i64,
}

/// The line of the instruction with the number `unit` (of two bytes each), in a table of `len`
/// bytes at `at`. `None` if it has none. A number below 0 is that of the function's line.
pub(crate) fn line_of<M: Memory>(
    memory: M,
    form: Lines,
    (at, len): (u64, u64),
    owner: Owner,
    unit: i64,
    reached: &mut Reached,
) -> Option<u32> {
    if unit < 0 {
        return Some(owner.first_line);
    }
    let wanted = match form {
        Lines::Entries => unit,
        Lines::Pairs | Lines::Ends => 2 * unit,
    };
    let is_of_table = (reached.table, reached.len, reached.owner) == (at, len, owner)
        && (0..=wanted).contains(&reached.end)
        && reached.left <= len;
    if !is_of_table {
        *reached = Reached {
            table: at,
            len,
            owner,
            left: len,
            line: owner.first_line.into(),
            end: 0,
        };
    }
    let Reached {
        left,
        mut line,
        mut end,
        ..
    } = *reached;
    let mut table = Table::new(memory, at + (len - left), left);
    loop {
        (reached.left, reached.line, reached.end) = (table.left(), line, end);
        let part = match form {
            Lines::Pairs => pair(&mut table),
            Lines::Ends => ended(&mut table),
            Lines::Entries => entry(&mut table),
        };
        let (units, lines, has_line) = match (part, form) {
            (Some(part), _) => part,
            // The last line that begins at or before the instruction goes on to the end.
            (None, Lines::Pairs) => return u32::try_from(line).ok(),
            (None, _) => return None,
        };
        end += units;
        if form == Lines::Pairs {
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

/// How many units a part of a table has, how many lines on it is, and whether it has a line.
type Part = (i64, i64, bool);

#[inline(always)]
fn pair<M: Memory>(table: &mut Table<M>) -> Option<Part> {
    let (bytes, lines) = (table.byte()?, table.byte()? as i8);
    Some((bytes.into(), lines.into(), true))
}

#[inline(always)]
fn ended<M: Memory>(table: &mut Table<M>) -> Option<Part> {
    let (bytes, lines) = (table.byte()?, table.byte()? as i8);
    let has_line = lines != i8::MIN;
    Some((
        bytes.into(),
        if has_line { lines.into() } else { 0 },
        has_line,
    ))
}

#[inline(always)]
fn entry<M: Memory>(table: &mut Table<M>) -> Option<Part> {
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
