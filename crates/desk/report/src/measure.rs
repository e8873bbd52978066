//! Values with their units, percentages and times, as text.

use heapprof_profile::{Unit, UnitFamily};
use heapprof_text::push_whole;

use crate::error::ReportError;
use crate::style::{ReportFormat, ReportStyle};

/// A formatter for values of one sample type.
#[derive(Clone, Debug)]
pub struct UnitFormatter {
    unit: String,
    /// The unit of the values with its family, and the fixed unit in which they are shown, if there
    /// is one.
    family: Option<(Unit, Option<(&'static str, f64)>)>,
    /// Whether values are shown as plain numbers, for programs.
    raw: bool,
}

const BYTE_UNITS: [(&str, f64); 6] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
    ("PiB", 1125899906842624.0),
];
const TIME_UNITS: [(&str, f64); 6] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 6e10),
    ("h", 3.6e12),
];

impl UnitFormatter {
    /// Makes a formatter for bytes in a report of this style. In CSV, numbers are shown as they
    /// are.
    pub(crate) fn bytes(style: &ReportStyle) -> Result<Self, ReportError> {
        match style.format {
            ReportFormat::Csv => Ok(Self::raw()),
            _ => Self::new("bytes", style.unit.as_deref()),
        }
    }

    /// Makes a formatter for values in `unit`. They are shown in the unit `wanted`, if one is
    /// given. Fails if `wanted` is not a unit or does not fit `unit`.
    pub fn new(unit: &str, wanted: Option<&str>) -> Result<Self, ReportError> {
        let family = Unit::parse(unit);
        let wanted = wanted.filter(|w| !w.eq_ignore_ascii_case("auto"));
        let fixed = match (wanted, family) {
            (None, _) => None,
            (Some(wanted), family) => {
                let error = |why: String| ReportError::Unit {
                    unit: wanted.to_string(),
                    why,
                };
                let to = Unit::parse(wanted).ok_or_else(|| {
                    error(
                        "is not a unit; use auto, B, KiB, MiB, GiB, TiB, PiB, ns, us, ms, s, min \
                         or h"
                            .to_string(),
                    )
                })?;
                let fits = family.is_some_and(|of| of.family == to.family);
                if !fits {
                    return Err(error(format!("the values are in {unit}")));
                }
                let known = steps(to.family).iter().find(|s| s.1 == to.factor as f64);
                Some(known.copied().unwrap_or(("B", 1.0)))
            }
        };
        Ok(Self {
            unit: crate::table::printable(unit).into_owned(),
            family: family.map(|of| (of, fixed)),
            raw: false,
        })
    }

    /// Makes a formatter for programs, which shows numbers as they are.
    pub fn raw() -> Self {
        Self {
            unit: String::new(),
            family: None,
            raw: true,
        }
    }

    /// Returns a value as text.
    pub fn show(&self, value: impl Into<i128>) -> String {
        let mut text = String::new();
        self.push(value, &mut text);
        text
    }

    /// Appends a value to a text.
    pub(crate) fn push(&self, value: impl Into<i128>, text: &mut String) {
        let value = value.into();
        let unit = match self.family {
            _ if self.raw => "",
            Some((of, fixed)) => {
                let base = value as f64 * of.factor as f64;
                let (name, factor) = fixed.unwrap_or_else(|| step(of.family, base));
                // Below the first step, numbers are whole and shown exactly.
                if factor != 1.0 || of.factor != 1 {
                    push_two_places(base / factor, text);
                    text.truncate(text.strip_suffix(".00").map_or(text.len(), str::len));
                    return text.push_str(name);
                }
                name
            }
            None if matches!(self.unit.as_str(), "" | "count" | "objects") => "",
            None => {
                push_whole(value, text);
                text.push(' ');
                return text.push_str(&self.unit);
            }
        };
        push_whole(value, text);
        text.push_str(unit);
    }

    /// Returns a value as text with its sign, even if it is positive.
    pub fn show_signed(&self, value: impl Into<i128>) -> String {
        let value = value.into();
        let sign = if value > 0 && !self.raw { "+" } else { "" };
        format!("{sign}{}", self.show(value))
    }
}

fn steps(family: UnitFamily) -> &'static [(&'static str, f64)] {
    match family {
        UnitFamily::Bytes => &BYTE_UNITS,
        UnitFamily::Time => &TIME_UNITS,
    }
}

/// Returns the largest unit of a family in which the value is at least one.
fn step(family: UnitFamily, base: f64) -> (&'static str, f64) {
    let steps = steps(family);
    let fits = steps.iter().rev().find(|(_, factor)| base.abs() >= *factor);
    *fits.unwrap_or(&steps[0])
}

/// Appends a number with two decimal places, as `{:.2}` shows it. `{:.2}` itself takes ten times as
/// long.
fn push_two_places(value: f64, text: &mut String) {
    let hundreds = value.abs() * 100.0;
    let whole = hundreds.floor();
    // The error of the product is smaller than this. Near a half, only the exact value decides how
    // to round.
    let is_clear = hundreds < 1e12 && (hundreds - whole - 0.5).abs() > 1e-3;
    if !is_clear {
        return text.push_str(&format!("{value:.2}"));
    }
    let rounded = whole as u64 + u64::from(hundreds - whole > 0.5);
    if value.is_sign_negative() {
        text.push('-');
    }
    push_whole(rounded / 100, text);
    let places = (rounded % 100) as u8;
    text.extend([
        '.',
        char::from(b'0' + places / 10),
        char::from(b'0' + places % 10),
    ]);
}

/// Returns `part` of `whole` in percent, or `-` if `whole` is 0.
pub fn percent(part: impl Into<i128>, whole: impl Into<i128>) -> String {
    let mut text = String::new();
    push_percent(part, whole, &mut text);
    text
}

/// Appends the text that [`percent`] returns.
pub(crate) fn push_percent(part: impl Into<i128>, whole: impl Into<i128>, text: &mut String) {
    let (part, whole) = (part.into(), whole.into());
    if whole == 0 {
        return text.push('-');
    }
    let share = 100.0 * part as f64 / whole as f64;
    match share.abs() {
        0.0 => text.push_str("0%"),
        size if size < 0.005 => text.push_str(if share < 0.0 { "-<0.01%" } else { "<0.01%" }),
        _ => {
            push_two_places(share, text);
            text.push('%');
        }
    }
}

/// Returns nanoseconds since 1970 as a time in UTC.
pub fn time_utc(nanos: i64) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(nanos)) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => format!("{nanos} ns since 1970"),
    }
}

/// Returns a number that was formatted already, with its noun in the singular or plural.
#[must_use]
pub fn plural(number: &str, one: &str) -> String {
    match number {
        "1" => format!("1 {one}"),
        number if one.ends_with('s') => format!("{number} {one}es"),
        number => format!("{number} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let auto = UnitFormatter::new("bytes", None).unwrap();
        let table = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1KiB"),
            (1536, "1.50KiB"),
            (-1536, "-1.50KiB"),
            (5 << 20, "5MiB"),
            (i64::MAX, "8192PiB"),
        ];
        for (value, expected) in table {
            assert_eq!(auto.show(value), expected);
        }
        let fixed = UnitFormatter::new("bytes", Some("mb")).unwrap();
        assert_eq!(fixed.show(512 << 10), "0.50MiB");
        assert_eq!(
            UnitFormatter::new("kilobytes", None).unwrap().show(2048),
            "2MiB"
        );
        assert_eq!(UnitFormatter::new("count", None).unwrap().show(12), "12");
        assert_eq!(
            UnitFormatter::new("nanoseconds", None)
                .unwrap()
                .show_signed(1500),
            "+1.50us"
        );
        assert!(UnitFormatter::new("bytes", Some("s")).is_err());
        assert!(UnitFormatter::new("bytes", Some("bananas")).is_err());
    }

    #[test]
    fn two_places_are_those_of_the_exact_value() {
        let odd = [
            0.0,
            -0.0,
            0.005,
            0.015,
            0.125,
            0.994_999_9,
            0.995,
            1.005,
            2.675,
            -1.255,
            99.995,
            1_023.994_999,
            1e10,
            123_456_789.125,
            1e15,
            f64::MAX,
            f64::NAN,
            f64::INFINITY,
        ];
        let even = (0..200_000).map(|n| f64::from(n) / 1024.0 / 7.0);
        for value in odd.into_iter().chain(even) {
            let mut text = String::new();
            push_two_places(value, &mut text);
            assert_eq!(text, format!("{value:.2}"));
        }
        for value in [0, 7, -7, 1 << 63, i128::MAX, i128::MIN] {
            let mut text = String::new();
            push_whole(value, &mut text);
            assert_eq!(text, value.to_string());
        }
    }

    #[test]
    fn percentages() {
        assert_eq!(percent(1, 3), "33.33%");
        assert_eq!(percent(-1, 3), "-33.33%");
        assert_eq!(percent(1, 1_000_000), "<0.01%");
        assert_eq!(percent(0, 5), "0%");
        assert_eq!(percent(5, 0), "-");
    }
}
