//! Values with their units, percentages and times, as text.

use heapprof_profile::{Family, Unit};

use crate::error::Error;

/// Shows values of one sample type.
#[derive(Clone, Debug)]
pub struct Measure {
    unit: String,
    /// What a value is in base units, and the fixed unit to show it in.
    family: Option<(Unit, Option<(&'static str, f64)>)>,
    /// Plain numbers, as programs want them.
    raw: bool,
}

const BYTES: [(&str, f64); 6] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
    ("PiB", 1125899906842624.0),
];
const TIME: [(&str, f64); 6] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 6e10),
    ("h", 3.6e12),
];

impl Measure {
    /// For values in `unit`, shown in the unit `wanted` if one is given.
    pub fn new(unit: &str, wanted: Option<&str>) -> Result<Self, Error> {
        let family = Unit::parse(unit);
        let wanted = wanted.filter(|w| !w.eq_ignore_ascii_case("auto"));
        let fixed = match (wanted, family) {
            (None, _) => None,
            (Some(wanted), family) => {
                let error = |why: String| Error::Unit {
                    unit: wanted.to_string(),
                    why,
                };
                let to = Unit::parse(wanted).ok_or_else(|| {
                    error(
                        "is no unit; use auto, B, KiB, MiB, GiB, TiB, PiB, ns, us, ms, s, min or h"
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

    /// For programs: numbers as they are.
    pub fn raw() -> Self {
        Self {
            unit: String::new(),
            family: None,
            raw: true,
        }
    }

    /// A value as text.
    pub fn show(&self, value: impl Into<i128>) -> String {
        let value = value.into();
        if self.raw {
            return value.to_string();
        }
        match self.family {
            Some((of, fixed)) => {
                let base = value as f64 * of.factor as f64;
                let (name, factor) = fixed.unwrap_or_else(|| step(of.family, base));
                // Below the first step numbers are whole: exact.
                match factor == 1.0 && of.factor == 1 {
                    true => format!("{value}{name}"),
                    false => format!("{}{name}", two_places(base / factor)),
                }
            }
            None if matches!(self.unit.as_str(), "" | "count" | "objects") => value.to_string(),
            None => format!("{value} {}", self.unit),
        }
    }

    /// A value as text with its sign, also when it is positive.
    pub fn show_signed(&self, value: impl Into<i128>) -> String {
        let value = value.into();
        let sign = if value > 0 && !self.raw { "+" } else { "" };
        format!("{sign}{}", self.show(value))
    }
}

fn steps(family: Family) -> &'static [(&'static str, f64)] {
    match family {
        Family::Bytes => &BYTES,
        Family::Time => &TIME,
    }
}

/// The largest unit that leaves at least one before the point.
fn step(family: Family, base: f64) -> (&'static str, f64) {
    let steps = steps(family);
    let fits = steps.iter().rev().find(|(_, factor)| base.abs() >= *factor);
    *fits.unwrap_or(&steps[0])
}

fn two_places(value: f64) -> String {
    let text = format!("{value:.2}");
    text.strip_suffix(".00").unwrap_or(&text).to_string()
}

/// `part` of `whole` in percent; `-` of nothing.
pub fn percent(part: impl Into<i128>, whole: impl Into<i128>) -> String {
    let (part, whole) = (part.into(), whole.into());
    match whole {
        0 => "-".to_string(),
        _ => {
            let share = 100.0 * part as f64 / whole as f64;
            match share.abs() {
                0.0 => "0%".to_string(),
                size if size < 0.005 => format!("{}<0.01%", if share < 0.0 { "-" } else { "" }),
                _ => format!("{share:.2}%"),
            }
        }
    }
}

/// Nanoseconds since 1970 as a time in UTC.
pub fn time_utc(nanos: i64) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(nanos)) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => format!("{nanos} ns since 1970"),
    }
}

/// So many of a thing, the number as it is shown.
pub(crate) fn plural(number: &str, one: &str) -> String {
    match number {
        "1" => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let auto = Measure::new("bytes", None).unwrap();
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
        let fixed = Measure::new("bytes", Some("mb")).unwrap();
        assert_eq!(fixed.show(512 << 10), "0.50MiB");
        assert_eq!(Measure::new("kilobytes", None).unwrap().show(2048), "2MiB");
        assert_eq!(Measure::new("count", None).unwrap().show(12), "12");
        assert_eq!(
            Measure::new("nanoseconds", None).unwrap().show_signed(1500),
            "+1.50us"
        );
        assert!(Measure::new("bytes", Some("s")).is_err());
        assert!(Measure::new("bytes", Some("bananas")).is_err());
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
