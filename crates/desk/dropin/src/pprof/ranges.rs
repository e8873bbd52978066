//! Ranges of number labels (`32kb`, `:64kb`, `4mb:`, `12kb:64mb`), compared in pprof's units.

use std::sync::LazyLock;

use crate::report::scale;
use crate::reshape::{LabelUnits, NumberTest};
use regex::Regex;

/// Regular expression for a number and an optional unit.
static BOUND_PATTERN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("([+-]?[0-9]+)([A-Za-z]+)?").ok());

/// Returns a test of whether a label's number is in a range, or `None` if the text is not a range.
/// The test assumes that all numbers of a key have the key's unit.
pub(super) fn parse_range(text: &str, units: &LabelUnits) -> Result<Option<NumberTest>, String> {
    let Some(bound) = BOUND_PATTERN.as_ref() else {
        return Ok(None);
    };
    let found: Vec<_> = bound.captures_iter(text).take(2).collect();
    let read = |at: usize| -> Result<(String, i64, String), String> {
        let whole = found[at][0].to_string();
        let unit = found[at].get(2).map_or("", |m| m.as_str()).to_string();
        let number = found[at][1].parse().map_err(|_| {
            format!(
                "{} is beyond what a 64-bit number holds; give a smaller one or a larger unit",
                &found[at][1]
            )
        })?;
        Ok((whole, number, unit))
    };
    if found.is_empty() {
        return Ok(None);
    }
    let (first, number, unit) = read(0)?;
    let (low, unit) = scale(number, &unit, &unit);
    let (least, most) = if found.len() == 1 {
        match text {
            text if text == first => (low, low),
            text if text == format!("{first}:") => (low, f64::INFINITY),
            text if text == format!(":{first}") => (f64::NEG_INFINITY, low),
            _ => return Ok(None),
        }
    } else {
        let (second, number, other) = read(1)?;
        if text != format!("{first}:{second}") {
            return Ok(None);
        }
        let (high, other) = scale(number, &other, &unit);
        if other != unit {
            return Ok(None);
        }
        (low, high)
    };
    let units = units.units.clone();
    Ok(Some(NumberTest(Box::new(move |key, number| {
        let from = units.get(key).map_or("", String::as_str);
        let (value, in_unit) = scale(number, from, &unit);
        in_unit == unit && value >= least && value <= most
    }))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks ranges against the results of pprof with `-tags -tagfocus`.
    #[test]
    fn ranges() {
        let units = LabelUnits {
            units: [("bytes".to_string(), "bytes".to_string())].into(),
            ..LabelUnits::default()
        };
        let table = [
            ("4kb", 4096, true),
            ("4kb", 4095, false),
            ("+4kb:", 4096, true),
            (":4kb", 4096, true),
            (":4kb", 4097, false),
            ("1kb:1mb", 1 << 20, true),
            ("1kb:1mb", 1023, false),
            ("-5b:5b", 0, true),
            // A number without a unit is never bytes.
            ("4096", 4096, false),
            ("4s", 4, false),
        ];
        for (text, number, expected) in table {
            let test = parse_range(text, &units).unwrap().unwrap();
            assert_eq!((test.0)("bytes", number), expected, "{text} {number}");
        }
        for text in ["main", "1kb-2kb", "x4kb", "1kb:2s", "1:2:3"] {
            assert!(parse_range(text, &units).unwrap().is_none(), "{text}");
        }
        assert!(parse_range("99999999999999999999", &units).is_err());
    }
}
