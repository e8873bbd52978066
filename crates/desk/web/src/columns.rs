//! Writes columns of numbers as LEB128, with the limits that the page's reader has.

use crate::PackError;

/// The largest value. JavaScript's numbers are exact up to here.
const MAX_VALUE: i64 = 1 << 53;
/// The smallest value. The reader takes a negative number's zigzag code, which is nearly twice as
/// large, as a number of JavaScript, so it must stay below 2^53 too.
const MIN_VALUE: i64 = -(1 << 52);

/// Where a column stands: its name, its first byte, how many values it has, and its kind.
pub(crate) type ColumnPlace = (String, usize, usize, &'static str);

/// Columns one after another.
#[derive(Default)]
pub(crate) struct PackedColumns {
    pub(crate) bytes: Vec<u8>,
    pub(crate) places: Vec<ColumnPlace>,
}

impl PackedColumns {
    /// Adds indices and the like as they are.
    pub(crate) fn plain(&mut self, name: &str, values: impl Iterator<Item = u32>) {
        self.add(name, "u", values.map(u64::from));
    }

    /// Adds values of both signs.
    pub(crate) fn values(&mut self, name: &str, values: &[i64]) -> Result<(), PackError> {
        for value in values {
            check_exact("a value", *value)?;
        }
        self.add(name, "z", values.iter().map(|value| zigzag(*value)));
        Ok(())
    }

    /// Adds indices and the like as differences. None is larger than `i32::MAX`, which the caller
    /// has checked, so that differences fit into 32 bits.
    pub(crate) fn differences(&mut self, name: &str, values: impl Iterator<Item = u32>) {
        let mut before = 0;
        let steps = values.map(|value| {
            let step = i64::from(value) - before;
            before = i64::from(value);
            zigzag(step)
        });
        self.add(name, "d", steps);
    }

    fn add(&mut self, name: &str, kind: &'static str, codes: impl Iterator<Item = u64>) {
        let start = self.bytes.len();
        let mut count = 0;
        for code in codes {
            leb128(&mut self.bytes, code);
            count += 1;
        }
        self.places.push((name.to_owned(), start, count, kind));
    }
}

/// Returns the value if the page can show it exactly.
pub(crate) fn check_exact(what: &'static str, value: i64) -> Result<i64, PackError> {
    if (MIN_VALUE..=MAX_VALUE).contains(&value) {
        return Ok(value);
    }
    Err(PackError::TooLarge {
        what,
        value: value.into(),
    })
}

/// Returns an index or a line, which the page reads with 32 bits.
pub(crate) fn check_small(what: &'static str, value: i64) -> Result<u32, PackError> {
    i32::try_from(value)
        .ok()
        .and_then(|value| u32::try_from(value).ok())
        .ok_or(PackError::TooLarge {
            what,
            value: value.into(),
        })
}

#[allow(clippy::cast_sign_loss)] // zigzag makes a sign the lowest bit
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn leb128(out: &mut Vec<u8>, mut code: u64) {
    while code > 127 {
        out.push((code & 127) as u8 | 128);
        code >>= 7;
    }
    out.push(code as u8);
}
