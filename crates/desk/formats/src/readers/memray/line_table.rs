//! Finds the line of Python code for the offset of an instruction.
//!
//! Each code object of Python has a table of its lines. The form of the table changed in 3.10 and
//! in 3.11; `Objects/lnotab_notes.txt` and `Objects/locations.md` of Python's sources describe it.
//! Instructions are counted as memray counts them, so the lines are the same as in memray.

/// Returns the line of each offset. `offsets` must be sorted. The line is 0 for an offset that the
/// table does not contain.
pub(super) fn lines(python: u32, table: &[u8], first_line: i64, offsets: &[i64]) -> Vec<i64> {
    let mut wanted = offsets.iter().map(|&offset| u64::try_from(offset).ok());
    let mut found = Vec::with_capacity(offsets.len());
    // An offset below 0 belongs to code that has not begun.
    let below = offsets.iter().take_while(|&&offset| offset < 0).count();
    found.resize(below, 0);
    for _ in 0..below {
        wanted.next();
    }
    let wanted: Vec<u64> = wanted.flatten().collect();
    let find = match python {
        _ if table.is_empty() => |_: &[u8], _: i64, _: &[u64], _: &mut Vec<i64>| {},
        0x030b_0000.. => find_lines_311,
        0x030a_0000.. => find_lines_310,
        _ => find_lines_39,
    };
    find(table, first_line, &wanted, &mut found);
    found.resize(offsets.len(), 0);
    found
}

/// Adds the line of each offset in `wanted` to `found`, from a table of Python 3.11 or later. An
/// entry's first byte determines the form of its other bytes. Code is counted in units of two
/// bytes.
fn find_lines_311(table: &[u8], first_line: i64, wanted: &[u64], found: &mut Vec<i64>) {
    let mut bytes = table.iter().copied();
    let mut wanted = wanted.iter().peekable();
    let (mut line, mut end) = (first_line, 0);
    while let Some(head) = bytes.next().filter(|&byte| byte != 0) {
        // Columns are left out.
        let change = match head >> 3 & 15 {
            15 => Some(0),
            14 => signed(&mut bytes).and_then(|change| {
                (0..3).try_for_each(|_| number(&mut bytes).map(|_| ()))?;
                Some(change)
            }),
            13 => signed(&mut bytes),
            kind @ 10..=12 => bytes.nth(1).map(|_| i64::from(kind) - 10),
            _ => bytes.next().map(|_| 0),
        };
        let Some(change) = change else {
            break;
        };
        line = line.wrapping_add(change);
        end += u64::from(head & 7) + 1;
        while wanted.next_if(|&&offset| offset / 2 < end).is_some() {
            found.push(line);
        }
    }
}

/// Reads a number with six bits in each byte, the lowest first.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0;
    for shift in (0..32).step_by(6) {
        let byte = bytes.next()?;
        value |= u32::from(byte & 63).checked_shl(shift)?;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = number(bytes)?;
    let size = i64::from(value >> 1);
    Some(if value & 1 == 1 { -size } else { size })
}

/// Adds the line of each offset in `wanted` to `found`, from a table of Python 3.10. The table
/// consists of pairs: a number of code bytes, and the change of the line at their beginning.
fn find_lines_310(table: &[u8], first_line: i64, wanted: &[u64], found: &mut Vec<i64>) {
    /// Mark of code without a line.
    const NO_LINE: i8 = -128;
    let (pairs, _) = table.as_chunks::<2>();
    let mut wanted = wanted.iter().peekable();
    let (mut line, mut end) = (first_line, 0);
    for &[length, change] in pairs {
        end += u64::from(length);
        let change = change.cast_signed();
        if change != NO_LINE {
            line = line.wrapping_add(change.into());
        }
        while wanted
            .next_if(|&&offset| offset.saturating_mul(2) < end)
            .is_some()
        {
            found.push(line);
        }
    }
    found.extend(wanted.map(|_| line));
}

/// Adds the line of each offset in `wanted` to `found`, from a table of Python up to 3.9. The table
/// consists of pairs: a number of code bytes, and the change of the line at their end.
fn find_lines_39(table: &[u8], first_line: i64, wanted: &[u64], found: &mut Vec<i64>) {
    let (pairs, _) = table.as_chunks::<2>();
    let mut wanted = wanted.iter().peekable();
    let (mut line, mut end) = (first_line, 0);
    for &[length, change] in pairs {
        end += u64::from(length);
        while wanted.next_if(|&&offset| offset < end).is_some() {
            found.push(line);
        }
        line = line.wrapping_add(change.cast_signed().into());
    }
    found.extend(wanted.map(|_| line));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the tables of lines that Python 3.11, 3.10 and 3.9 make for this function:
    ///
    /// ```text
    /// def f(a):
    ///     b = [a]
    ///     return (b +
    ///             a)
    /// ```
    #[test]
    fn lines_of_all_tables() {
        let newest = b"\x80\x00\xd8\x09\x0a\x88\x03\x80\x41\xd8\x0c\x0d\xd8\x0c\x0d\xf1\x03\x01\x0d\x0e\xf0\x00\x01\x05\x0f";
        assert_eq!(
            lines(0x030b_07f0, newest, 1, &[-1, 0, 2, 6, 8, 10, 12, 16, 18]),
            [0, 1, 2, 2, 3, 4, 3, 3, 0]
        );
        let of_310 = b"\x06\x01\x02\x01\x02\x01\x04\xff";
        assert_eq!(
            lines(0x030a_0df0, of_310, 1, &[0, 2, 3, 4, 5, 6, 99]),
            [2, 2, 3, 4, 3, 3, 3]
        );
        // Code without a line keeps the line before it.
        assert_eq!(
            lines(0x030a_0df0, b"\x02\x01\x02\x80\x02\x01", 1, &[0, 1, 2]),
            [2, 2, 3]
        );
        let oldest = b"\x00\x01\x06\x01\x02\x01\x02\xff";
        assert_eq!(
            lines(0x0309_12f0, oldest, 1, &[0, 5, 6, 8, 10, 13]),
            [2, 2, 3, 4, 3, 3]
        );
        assert_eq!(lines(0x030b_0000, b"", 7, &[0, 4]), [0, 0]);
    }

    #[test]
    fn tables_may_be_cut() {
        for table in [
            &[0xf0][..],
            &[0xf0, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f],
            &[0xd8],
            &[0xe8, 0x40],
        ] {
            assert_eq!(lines(0x030b_0000, table, 1, &[0]), [0]);
        }
        assert_eq!(lines(0x030a_0000, &[4], 5, &[0]), [5]);
    }
}
