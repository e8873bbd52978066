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

/// The line of the instruction with the number `unit` (of two bytes each), in a table of `len`
/// bytes at `at`. `None` if it has none. A number below 0 is that of the function's line.
pub(crate) fn line_of<M: Memory>(
    memory: M,
    form: Lines,
    (at, len): (u64, u64),
    first_line: u32,
    unit: i64,
) -> Option<u32> {
    let mut line = i64::from(first_line);
    if unit < 0 {
        return Some(first_line);
    }
    let mut table = Table::new(memory, at, len);
    let found = |line: i64| u32::try_from(line).ok();
    let mut end = 0;
    match form {
        Lines::Pairs => {
            // The last line that begins at or before the instruction.
            while let (Some(bytes), Some(lines)) = (table.byte(), table.byte()) {
                end += i64::from(bytes);
                if end > 2 * unit {
                    break;
                }
                line += i64::from(lines as i8);
            }
            found(line)
        }
        Lines::Ends => loop {
            let (bytes, lines) = (table.byte()?, table.byte()? as i8);
            end += i64::from(bytes);
            let has_line = lines != i8::MIN;
            if has_line {
                line += i64::from(lines);
            }
            if end > 2 * unit {
                return if has_line { found(line) } else { None };
            }
        },
        Lines::Entries => loop {
            let byte = table.byte()?;
            let mut has_line = true;
            match byte >> 3 & 15 {
                15 => has_line = false,
                kind @ (13 | 14) => {
                    let value = table.varint()?;
                    let lines = (value >> 1) as i64;
                    line += if value & 1 == 1 { -lines } else { lines };
                    for _ in 0..if kind == 14 { 3 } else { 0 } {
                        table.varint()?;
                    }
                }
                kind @ 10..=12 => {
                    line += i64::from(kind) - 10;
                    table.byte()?;
                    table.byte()?;
                }
                _ => {
                    table.byte()?;
                }
            }
            end += i64::from(byte & 7) + 1;
            if end > unit {
                return if has_line { found(line) } else { None };
            }
        },
    }
}

#[cfg(test)]
mod tests;
