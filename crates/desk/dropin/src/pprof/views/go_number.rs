//! Numbers as Go writes them, because pprof's settings and its URLs have them.

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

    /// Checks texts against those of Go's fmt and encoding/json.
    #[test]
    fn go() {
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
