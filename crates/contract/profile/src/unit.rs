//! Units of values: which units convert into each other, and how many base units each one has.
//!
//! Families and names are those of pprof: bytes in powers of 1024, and times from nanoseconds up.
//! IEC names are also read.

/// A family of units that convert into each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnitFamily {
    /// Amounts of memory. The base unit is the byte.
    Bytes,
    /// Durations. The base unit is the nanosecond.
    Time,
}

/// A unit that this crate can convert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// Family of the unit.
    pub family: UnitFamily,
    /// Number of base units in this unit.
    pub factor: i64,
}

/// Returns a number of bytes that is written as people write it: `512`, `16GiB` or `1.5gb`; `None`
/// for any other text.
///
/// ```
/// assert_eq!(heapprof_profile::parse_bytes("1.5KiB"), Some(1536));
/// assert_eq!(heapprof_profile::parse_bytes("5 bananas"), None);
/// ```
pub fn parse_bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (digits, unit) = text.split_at(split.unwrap_or(text.len()));
    let number: f64 = digits.parse().ok()?;
    let factor = match unit.trim() {
        "" => 1,
        unit => {
            Unit::parse(unit)
                .filter(|unit| unit.family == UnitFamily::Bytes)?
                .factor
        }
    };
    Some((number * factor as f64) as u64)
}

impl Unit {
    /// Reads the name of a unit, in any case, singular or plural, short or long; `None` for an
    /// unknown name, e.g. `count`.
    ///
    /// ```
    /// use heapprof_profile::{UnitFamily, ProfileBuilder, Unit};
    /// let kilobyte = Unit { family: UnitFamily::Bytes, factor: 1024 };
    /// assert_eq!(Unit::parse("KiB"), Some(kilobyte));
    /// assert_eq!(Unit::parse("count"), None);
    ///
    /// let mut builder = ProfileBuilder::new(&[("inuse_space", "KiB")]);
    /// builder.add_folded("main;parse", &[3]);
    /// let mut profile = builder.finish();
    /// profile.convert_unit(0, "bytes")?;
    /// assert_eq!(profile.samples.values(0), [3072]);
    /// # Ok::<(), heapprof_profile::Error>(())
    /// ```
    pub fn parse(name: &str) -> Option<Unit> {
        let mut name = name.to_ascii_lowercase();
        if name.len() > 2 && name.ends_with('s') && name != "hrs" {
            name.pop();
        }
        let bytes = |power: u32| {
            Some(Unit {
                family: UnitFamily::Bytes,
                factor: 1 << (10 * power),
            })
        };
        let time = |factor: i64| {
            Some(Unit {
                family: UnitFamily::Time,
                factor,
            })
        };
        match name.as_str() {
            "b" | "byte" => bytes(0),
            "k" | "kb" | "kib" | "kbyte" | "kilobyte" | "kibibyte" => bytes(1),
            "m" | "mb" | "mib" | "mbyte" | "megabyte" | "mebibyte" => bytes(2),
            "g" | "gb" | "gib" | "gbyte" | "gigabyte" | "gibibyte" => bytes(3),
            "t" | "tb" | "tib" | "tbyte" | "terabyte" | "tebibyte" => bytes(4),
            "p" | "pb" | "pib" | "pbyte" | "petabyte" | "pebibyte" => bytes(5),
            "n" | "ns" | "nanosecond" => time(1),
            "u" | "us" | "microsecond" | "µs" => time(1_000),
            "ms" | "millisecond" => time(1_000_000),
            "s" | "sec" | "second" => time(1_000_000_000),
            "min" | "minute" => time(60_000_000_000),
            "h" | "hr" | "hrs" | "hour" => time(3_600_000_000_000),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let table = [
            ("bytes", Some((UnitFamily::Bytes, 1))),
            ("KiB", Some((UnitFamily::Bytes, 1024))),
            ("megabytes", Some((UnitFamily::Bytes, 1 << 20))),
            ("nanoseconds", Some((UnitFamily::Time, 1))),
            ("hrs", Some((UnitFamily::Time, 3_600_000_000_000))),
            ("count", None),
            ("", None),
        ];
        for (name, expected) in table {
            assert_eq!(
                Unit::parse(name).map(|u| (u.family, u.factor)),
                expected,
                "{name}"
            );
        }
    }
}
