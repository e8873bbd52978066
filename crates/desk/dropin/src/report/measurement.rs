//! Formats values and percentages as pprof does, with its unit families, choice of unit and
//! rounding.
//!
//! Source of names and factors: google/pprof, internal/measurement. 1 kB is 1024 B.

/// A unit: its printed name, the names that are recognized (lower case, without a trailing s), and
/// its size in base units.
type UnitEntry = (&'static str, &'static [&'static str], f64);

struct PprofUnitFamily {
    units: &'static [UnitEntry],
    /// The unit for values if the wanted unit belongs to another family, or if the value is below
    /// one in every unit.
    fallback: (&'static str, f64),
}

const UNIT_FAMILIES: [PprofUnitFamily; 3] = [
    PprofUnitFamily {
        units: &[
            ("B", &["b", "byte"], 1.0),
            ("kB", &["kb", "kbyte", "kilobyte"], 1024.0),
            ("MB", &["mb", "mbyte", "megabyte"], 1048576.0),
            ("GB", &["gb", "gbyte", "gigabyte"], 1073741824.0),
            ("TB", &["tb", "tbyte", "terabyte"], 1099511627776.0),
            ("PB", &["pb", "pbyte", "petabyte"], 1125899906842624.0),
        ],
        fallback: ("B", 1.0),
    },
    PprofUnitFamily {
        units: &[
            ("ns", &["ns", "nanosecond"], 1.0),
            ("us", &["μs", "us", "microsecond"], 1e3),
            ("ms", &["ms", "millisecond"], 1e6),
            ("s", &["s", "sec", "second"], 1e9),
            ("hrs", &["hour", "hr"], 3.6e12),
        ],
        fallback: ("s", 1e9),
    },
    PprofUnitFamily {
        units: &[
            ("n*GCU", &["nanogcu"], 1e-9),
            ("u*GCU", &["microgcu"], 1e-6),
            ("m*GCU", &["milligcu"], 1e-3),
            ("GCU", &["gcu"], 1.0),
            ("k*GCU", &["kilogcu"], 1e3),
            ("M*GCU", &["megagcu"], 1e6),
            ("G*GCU", &["gigagcu"], 1e9),
            ("T*GCU", &["teragcu"], 1e12),
            ("P*GCU", &["petagcu"], 1e15),
        ],
        fallback: ("GCU", 1.0),
    },
];

impl PprofUnitFamily {
    fn find(&self, name: &str) -> Option<&'static UnitEntry> {
        let lower = name.to_lowercase();
        let name = match lower.strip_suffix('s') {
            Some(singular) if lower.len() > 2 => singular,
            _ => &lower,
        };
        self.units
            .iter()
            .find(|(_, names, _)| names.contains(&name))
    }
}

/// Conversion of values from one unit to another. It is chosen once and used for many values.
#[derive(Clone, Debug)]
pub struct UnitScale {
    conversion: UnitConversion,
}

#[derive(Clone, Debug)]
enum UnitConversion {
    /// Conversion to one unit: the wanted unit, or the family's fallback if the wanted unit belongs
    /// to another family.
    Fixed {
        worth: f64,
        unit: &'static str,
        of: f64,
    },
    /// Conversion to the largest unit of the family in which the value is at least one.
    Auto { worth: f64, family: usize },
    /// No conversion, because pprof does not know the unit. The number is unchanged. The wanted
    /// unit follows the number, except for `minimum`, `auto` and words for counts.
    Unknown(String),
}

impl UnitScale {
    /// Chooses the conversion from a unit of the profile to the wanted unit, which may also be
    /// `minimum` or `auto`.
    pub fn new(from: &str, to: &str) -> Self {
        let auto = matches!(to, "minimum" | "auto");
        let how = UNIT_FAMILIES
            .iter()
            .enumerate()
            .find_map(|(family, units)| {
                let &(_, _, worth) = units.find(from)?;
                Some(match units.find(to) {
                    _ if auto => UnitConversion::Auto { worth, family },
                    Some(&(unit, _, of)) => UnitConversion::Fixed { worth, unit, of },
                    None => UnitConversion::Fixed {
                        worth,
                        unit: units.fallback.0,
                        of: units.fallback.1,
                    },
                })
            });
        let dull = auto || matches!(to, "count" | "sample" | "unit");
        Self {
            conversion: how
                .unwrap_or_else(|| UnitConversion::Unknown(if dull { "" } else { to }.to_string())),
        }
    }

    /// Returns the value in the wanted unit, and the printed name of this unit (empty for counts).
    pub fn apply(&self, value: i64) -> (f64, &str) {
        // The least number has no positive counterpart. pprof leaves it negative.
        let (sign, size) = match value {
            i64::MIN => (1.0, value as f64),
            value if value < 0 => (-1.0, -(value as f64)),
            value => (1.0, value as f64),
        };
        let (scaled, unit) = match &self.conversion {
            UnitConversion::Fixed { worth, unit, of } => (size * worth / of, *unit),
            UnitConversion::Auto { worth, family } => {
                let base = size * worth;
                let family = &UNIT_FAMILIES[*family];
                let mut best = (family.fallback.1, family.fallback.0);
                let mut most = 0.0;
                for &(name, _, factor) in family.units {
                    if factor >= most && base / factor >= 1.0 {
                        (most, best) = (factor, (factor, name));
                    }
                }
                (base / best.0, best.1)
            }
            UnitConversion::Unknown(unit) => (size, unit.as_str()),
        };
        (sign * scaled, unit)
    }

    /// Returns `ratio` times the absolute value `size` in the unit that the scripts of pprof's page
    /// choose, and the printed name of this unit. The value takes the same steps as there, because
    /// each step rounds it.
    pub(super) fn apply_as_script(&self, size: f64, ratio: f64) -> (f64, &'static str) {
        let UnitConversion::Auto { worth, family } = &self.conversion else {
            return (size * ratio, "");
        };
        let family = &UNIT_FAMILIES[*family];
        let factor = family.fallback.1;
        let base = size * (worth / factor * ratio) * factor;
        let mut best = ("", 1.0);
        for &(name, _, factor) in family.units {
            if best.0.is_empty() || factor <= base {
                best = (name, factor);
            }
        }
        (base / best.1, best.0)
    }

    /// Returns the value as text with its unit. It has two decimals unless both are zero. A zero is
    /// `0` without a unit.
    pub fn label(&self, value: i64) -> String {
        let (scaled, unit) = self.apply(value);
        // Most numbers are whole and need no rounding.
        if scaled.fract() == 0.0 && scaled.abs() < 1e15 {
            return match scaled as i64 {
                0 => "0".to_string(),
                whole => format!("{whole}{unit}"),
            };
        }
        let mut text = format!("{scaled:.2}");
        if text.ends_with(".00") {
            text.truncate(text.len() - 3);
        }
        match text.as_str() {
            "0" | "-0" => "0".to_string(),
            _ => text + unit,
        }
    }
}

/// Converts `value` to another unit. Also returns the printed name of the unit.
pub fn scale(value: i64, from: &str, to: &str) -> (f64, String) {
    let scale = UnitScale::new(from, to);
    let (scaled, unit) = scale.apply(value);
    (scaled, unit.to_string())
}

/// Whether two names belong to units of the same family.
pub fn convertible(a: &str, b: &str) -> bool {
    let mut families = UNIT_FAMILIES.iter();
    families.any(|family| family.find(a).is_some() && family.find(b).is_some())
}

/// Returns `value` as text, in a unit that suits its size.
pub fn label(value: i64, unit: &str) -> String {
    scaled_label(value, unit, "auto")
}

/// Returns `value` as text, converted to the unit `to` and followed by this unit.
pub fn scaled_label(value: i64, from: &str, to: &str) -> String {
    UnitScale::new(from, to).label(value)
}

/// Returns the absolute value of `value` in percent of `total`, at least six characters wide.
pub fn percentage(value: i64, total: i64) -> String {
    let ratio = match total {
        0 => 0.0,
        _ => (value as f64 / total as f64).abs() * 100.0,
    };
    match ratio {
        99.95..=100.05 => "  100%".to_string(),
        1.0.. => format!("{ratio:5.2}%"),
        _ => format!("{:>5}%", two_digits(ratio)),
    }
}

/// Returns a number from 0 to 1 with at most two significant digits, and with an exponent if it is
/// small (C's `%.2g`).
fn two_digits(value: f64) -> String {
    let scientific = format!("{value:.1e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || exponent >= -4 {
        let decimals = usize::try_from(1 - exponent).unwrap_or(0);
        let plain = format!("{value:.decimals$}");
        let plain = plain.trim_end_matches('0').trim_end_matches('.');
        return if plain.is_empty() { "0" } else { plain }.to_string();
    }
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e-{:02}", -exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks texts against pprof's.
    #[test]
    fn labels() {
        let table = [
            (0, "bytes", "auto", "0"),
            (1023, "bytes", "auto", "1023B"),
            (1024, "bytes", "minimum", "1kB"),
            (1536, "Bytes", "auto", "1.50kB"),
            (-1536, "b", "auto", "-1.50kB"),
            (1, "bytes", "MB", "0"),
            (-1, "bytes", "MB", "0"),
            (i64::MIN, "bytes", "kb", "-9007199254740992kB"),
            (i64::MAX, "bytes", "auto", "8192PB"),
            (3, "bytes", "banana", "3B"),
            (3, "bytes", "seconds", "3B"),
            (1500, "nanoseconds", "bytes", "0"),
            (90, "s", "auto", "90s"),
            (7200, "sec", "auto", "2hrs"),
            (1, "hour", "us", "3600000000us"),
            (5, "count", "auto", "5"),
            (5, "count", "count", "5"),
            (5, "count", "kb", "5kb"),
            (5, "objects", "", "5"),
            (2500, "GCU", "auto", "2.50k*GCU"),
            (1, "nanoGCUs", "auto", "1n*GCU"),
        ];
        for (value, from, to, expected) in table {
            assert_eq!(
                scaled_label(value, from, to),
                expected,
                "{value} {from} {to}"
            );
        }
    }

    /// Checks texts against those of the script in pprof's page.
    #[test]
    fn script_values() {
        for (size, from, expected) in [
            (37105.0, "nanoseconds", (37.105000000000004, "us")),
            (0.0, "nanoseconds", (0.0, "ns")),
            (1536.0, "bytes", (1.5, "kB")),
            (7.0, "count", (7.0, "")),
        ] {
            let found = UnitScale::new(from, "auto").apply_as_script(size, 1.0);
            assert_eq!(found, expected, "{size} {from}");
        }
    }

    #[test]
    fn percentages() {
        let table = [
            (0, 0, "    0%"),
            (0, 5, "    0%"),
            (5, 0, "    0%"),
            (1, 1, "  100%"),
            (-1, 1, "  100%"),
            (99_949, 100_000, "99.95%"),
            (99_950, 100_000, "  100%"),
            (100_051, 100_000, "100.05%"),
            (1, 100, " 1.00%"),
            (999, 100_000, "    1%"),
            (1, 1000, "  0.1%"),
            (123_456, 100_000_000, " 0.12%"),
            (15, 1_000_000, "0.0015%"),
            (1, 1_000_000, "0.0001%"),
            (1234, 10_000_000_000, "1.2e-05%"),
            (1, 100_000_000, "1e-06%"),
        ];
        for (value, total, expected) in table {
            assert_eq!(percentage(value, total), expected, "{value} of {total}");
        }
    }
}
