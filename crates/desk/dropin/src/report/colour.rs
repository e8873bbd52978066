//! Colours of pprof's pictures: green for decreases, red for increases, grey in between.

/// Returns the colour of a score from -1 to 1 as `#rrggbb`. A colour for a background is light.
pub(super) fn colour(score: f64, background: bool) -> String {
    // A score that is not a number (0 divided by a total of 0) stays as it is.
    let score = if score > 1.0 { 1.0 } else { score };
    let score = if score < -1.0 { -1.0 } else { score };
    let (mut saturation, value) = if background { (0.1, 0.93) } else { (1.0, 0.7) };
    if score.abs() < 0.2 {
        saturation *= score.abs() / 0.2;
    }
    // Powers spread small scores over the range, so that their colours differ.
    let score = match score {
        score if score > 0.0 => score.powf(0.3),
        score if score < 0.0 => -(-score).powf(0.3),
        score => score,
    };
    let (red, green) = match score < 0.0 {
        true => (value * (1.0 + saturation * score), value),
        false => (value, value * (1.0 - saturation * score)),
    };
    let blue = value * (1.0 - saturation);
    let byte = |part: f64| (part * 255.0) as u8;
    format!("#{:02x}{:02x}{:02x}", byte(red), byte(green), byte(blue))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks colours against pprof's.
    #[test]
    fn colours() {
        let table = [
            (1.0, "#b20000", "#edd5d5"),
            (2.0, "#b20000", "#edd5d5"),
            (-1.0, "#00b200", "#d5edd5"),
            (0.0, "#b2b2b2", "#ededed"),
            (f64::NAN, "#b20000", "#ed00d5"),
        ];
        for (score, front, back) in table {
            assert_eq!(colour(score, false), front, "{score}");
            assert_eq!(colour(score, true), back, "{score}");
        }
    }
}
