//! Writes columns of numbers as LEB128, within the limits of the page's JavaScript.

use crate::PackError;

/// The largest value of a page. JavaScript numbers are exact up to here.
pub const MAX_VALUE: i64 = 1 << 53;
/// The smallest value. The page stores the zigzag code of a negative value as a JavaScript number,
/// and this code, which is nearly twice as large, must also be below 2^53.
const MIN_VALUE: i64 = -(1 << 52);

/// The location of a column: its name, its first byte, its number of values, and its kind.
pub(crate) type ColumnPlace = (String, usize, usize, &'static str);

/// Encoded columns, one after another.
#[derive(Default)]
pub(crate) struct PackedColumns {
    pub(crate) bytes: Vec<u8>,
    pub(crate) places: Vec<ColumnPlace>,
}

impl PackedColumns {
    /// Adds a column of indices or other unsigned numbers.
    pub(crate) fn plain(&mut self, name: &str, values: impl Iterator<Item = u32>) {
        self.add(name, "u", values.map(u64::from));
    }

    /// Adds a column of values that may be negative.
    pub(crate) fn values(&mut self, name: &str, values: &[i64]) -> Result<(), PackError> {
        for value in values {
            check_exact("a value", *value)?;
        }
        self.add(name, "z", values.iter().map(|value| zigzag(*value)));
        Ok(())
    }

    /// Adds a column of indices or other unsigned numbers as differences: each number minus the
    /// number before it. The caller must have checked that none is larger than `i32::MAX`, so that
    /// differences fit into 32 bits.
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

/// Returns the value if the page can show it exactly, and an error otherwise.
pub(crate) fn check_exact(what: &'static str, value: i64) -> Result<i64, PackError> {
    if (MIN_VALUE..=MAX_VALUE).contains(&value) {
        return Ok(value);
    }
    Err(PackError::TooLarge {
        what,
        value: value.into(),
    })
}

/// Returns an index or a line if it fits in the 32 bits that the page reads, and an error
/// otherwise.
pub(crate) fn check_small(what: &'static str, value: i64) -> Result<u32, PackError> {
    i32::try_from(value)
        .ok()
        .and_then(|value| u32::try_from(value).ok())
        .ok_or(PackError::TooLarge {
            what,
            value: value.into(),
        })
}

#[allow(clippy::cast_sign_loss)] // The zigzag code has the sign in its lowest bit.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_leb128() {
        for (code, expected) in [
            (0u64, &[0][..]),
            (127, &[127]),
            (128, &[128, 1]),
            (300, &[172, 2]),
            (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut out = Vec::new();
            leb128(&mut out, code);
            assert_eq!(out, expected, "{code}");
        }
    }

    /// Tests that the zigzag code has the sign in its lowest bit.
    #[test]
    fn small_numbers_of_both_signs_have_small_codes() {
        for (value, code) in [
            (0, 0),
            (-1, 1),
            (1, 2),
            (-2, 3),
            (i64::MAX, u64::MAX - 1),
            (i64::MIN, u64::MAX),
        ] {
            assert_eq!(zigzag(value), code, "{value}");
        }
    }

    #[test]
    fn columns_follow_each_other() {
        let mut columns = PackedColumns::default();
        columns.plain("a", [300, 1].into_iter());
        columns.differences("b", [5, 5, 3].into_iter());
        columns.values("c", &[-1, 64]).unwrap();
        assert_eq!(columns.bytes, [172, 2, 1, 10, 0, 3, 1, 128, 1]);
        let places: Vec<_> = columns
            .places
            .iter()
            .map(|(name, start, count, kind)| (name.as_str(), *start, *count, *kind))
            .collect();
        assert_eq!(
            places,
            [("a", 0, 2, "u"), ("b", 3, 3, "d"), ("c", 6, 2, "z")]
        );
    }

    /// Tests the limits up to which JavaScript numbers and the codes of values are exact.
    #[test]
    fn only_exact_numbers_are_written() {
        for value in [0, 1 << 53, -1 << 52] {
            assert_eq!(check_exact("a value", value), Ok(value));
        }
        for value in [(1 << 53) + 1, (-1 << 52) - 1, i64::MAX, i64::MIN] {
            let what = "a value";
            let expected = PackError::TooLarge {
                what,
                value: value.into(),
            };
            assert_eq!(check_exact(what, value), Err(expected.clone()));
            let mut columns = PackedColumns::default();
            assert_eq!(columns.values("v", &[1, value]), Err(expected));
        }
        assert_eq!(check_small("a line", i32::MAX.into()), Ok(i32::MAX as u32));
        assert!(check_small("a line", i64::from(i32::MAX) + 1).is_err());
        assert!(check_small("a line", -1).is_err());
    }
}
