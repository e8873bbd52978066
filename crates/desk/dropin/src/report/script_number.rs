//! Numbers as JavaScript writes them, because the scripts of pprof's page do.

/// Returns a number with `decimals` decimals, as JavaScript's `toFixed` does: a number in the
/// middle between two such numbers is rounded away from zero.
pub(crate) fn to_fixed(number: f64, decimals: usize) -> String {
    let number = match number.is_finite() {
        true => number,
        false => 0.0,
    };
    // Only a multiple of 1/2, 1/4 or 1/8 is exactly in the middle for up to two decimals.
    let halves = number.abs() * [2.0, 4.0, 8.0][decimals.min(2)];
    let is_middle = halves.fract() == 0.0 && halves % 2.0 == 1.0;
    let nudge = match is_middle {
        true => 10f64.powi(-(decimals as i32) - 2).copysign(number),
        false => 0.0,
    };
    let text = format!("{:.decimals$}", number + nudge);
    match text
        .trim_start_matches('-')
        .trim_matches(['0', '.'])
        .is_empty()
    {
        // JavaScript's zero has no sign.
        true if number == 0.0 => text.trim_start_matches('-').to_string(),
        _ => text,
    }
}

/// Returns a number with at most `decimals` decimals, without zeros at the end.
pub(crate) fn to_short(number: f64, decimals: usize) -> String {
    let text = to_fixed(number, decimals);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match text {
        "-0" => "0".to_string(),
        text => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks texts against those of `toFixed` in Chromium.
    #[test]
    fn javascript() {
        for (number, decimals, fixed, short) in [
            (0.125, 2, "0.13", "0.13"),
            (0.375, 2, "0.38", "0.38"),
            (-0.125, 2, "-0.13", "-0.13"),
            (1.005, 2, "1.00", "1"),
            (0.25, 1, "0.3", "0.3"),
            (99.96, 1, "100.0", "100"),
            (100.0, 2, "100.00", "100"),
            (0.0, 2, "0.00", "0"),
            (-0.001, 2, "-0.00", "0"),
            (2.5, 0, "3", "3"),
        ] {
            assert_eq!(to_fixed(number, decimals), fixed, "{number}");
            assert_eq!(to_short(number, decimals), short, "{number}");
        }
    }
}
