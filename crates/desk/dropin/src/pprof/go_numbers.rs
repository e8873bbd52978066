//! Numbers with a fraction, as Go reads and writes them: flags, options and saved settings have
//! them.

/// Reads a number as Go's `strconv.ParseFloat` does, with underscores between digits and in
/// hexadecimal, too; `None` if it is none, or too large.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let plain = without_underscores(text)?;
    let (sign, digits) = match plain.strip_prefix(['-', '+']) {
        Some(digits) if plain.starts_with('-') => (-1.0, digits),
        Some(digits) => (1.0, digits),
        None => (1.0, plain.as_str()),
    };
    let hexadecimal = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let value = match hexadecimal {
        Some(digits) => parse_hexadecimal(digits)?,
        None if digits.starts_with(['-', '+']) => return None,
        None => digits.parse().ok()?,
    };
    // Only a word such as inf is infinite; a number that large is an error.
    let is_word = digits.starts_with(|c: char| c.is_ascii_alphabetic());
    (value.is_finite() || is_word).then_some(sign * value)
}

/// Removes underscores, each of which must stand between two digits, or behind a prefix such as
/// `0x`.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_prefix = |at: usize| {
        let digits = text.trim_start_matches(['-', '+']);
        let start = text.len() - digits.len();
        at == start + 1 && bytes[start] == b'0' && matches!(bytes[at] | 32, b'x' | b'o' | b'b')
    };
    let unsigned = text.trim_start_matches(['-', '+']);
    let is_hexadecimal = unsigned.starts_with("0x") || unsigned.starts_with("0X");
    for (at, _) in text.match_indices('_') {
        let before = at.checked_sub(1)?;
        let is_digit = |at: usize| {
            bytes.get(at).is_some_and(|byte| match is_hexadecimal {
                true => byte.is_ascii_hexdigit(),
                false => byte.is_ascii_digit(),
            })
        };
        if !(is_digit(before) || is_prefix(before)) || !is_digit(at + 1) {
            return None;
        }
    }
    Some(text.replace('_', ""))
}

/// Reads a hexadecimal number, which must have an exponent of two: `1.8p3`.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let exponent: i32 = exponent.parse().ok()?;
    let shift = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    Some(value * 2f64.powi(exponent.checked_sub(shift)?))
}

/// Returns a number as Go prints it: with the fewest digits, and with an exponent if it is below
/// 1e-4 or at least a million.
pub(super) fn go_text(number: f64) -> String {
    with_exponent(number, |exponent| !(-4..6).contains(&exponent), true)
}

/// Returns a number as Go's encoding/json writes it.
pub(super) fn go_json(number: f64) -> String {
    with_exponent(number, |exponent| !(-6..21).contains(&exponent), false)
}

/// Writes a number with an exponent if `is_extreme` returns true for it. With `is_wide`, a short
/// exponent has two digits.
fn with_exponent(number: f64, is_extreme: impl Fn(i32) -> bool, is_wide: bool) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || !is_extreme(exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let size = exponent.unsigned_abs();
    match is_wide {
        true => format!("{digits}e{sign}{size:02}"),
        false => format!("{digits}e{sign}{size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results are those of Go.
    #[test]
    fn numbers() {
        for (text, expected) in [
            ("0.005", Some(0.005)),
            ("-1e3", Some(-1000.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1_0", Some(10.0)),
            ("0x1p-4", Some(0.0625)),
            ("-0x1.8p1", Some(-3.0)),
            ("0x_1p0", Some(1.0)),
            ("+Inf", Some(f64::INFINITY)),
            ("1e400", None),
            ("0x1", None),
            ("0xp1", None),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("1e_5", None),
            ("1_e5", None),
            ("1e1_0", Some(1e10)),
            ("--1", None),
            ("", None),
            ("0x1p99999", None),
            ("many", None),
        ] {
            assert_eq!(parse_float(text), expected, "{text}");
        }
        assert!(parse_float("nan").is_some_and(f64::is_nan));
    }

    /// Checks texts against those of Go's fmt and encoding/json.
    #[test]
    fn texts() {
        for (number, text, json) in [
            (0.005, "0.005", "0.005"),
            (0.0, "0", "0"),
            (1.0, "1", "1"),
            (1e-5, "1e-05", "0.00001"),
            (2.5e-7, "2.5e-07", "2.5e-7"),
            (1e21, "1e+21", "1e+21"),
            (1234567.5, "1.2345675e+06", "1234567.5"),
            (123456.5, "123456.5", "123456.5"),
            (-0.25, "-0.25", "-0.25"),
        ] {
            assert_eq!(
                (go_text(number).as_str(), go_json(number).as_str()),
                (text, json)
            );
        }
    }
}
