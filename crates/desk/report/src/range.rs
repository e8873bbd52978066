//! The range of an estimate as text, cells and JSON.

use heapprof_analysis::ValueEstimate;
use serde_json::{Map, Value, json};

use crate::measure::{UnitFormatter, plural};

/// Whether the value is in the middle of its range, so that `±` can express the range.
fn is_even(value: i128, estimate: &ValueEstimate) -> bool {
    let (below, above) = (
        value - i128::from(estimate.low),
        i128::from(estimate.high) - value,
    );
    // Both ends are rounded outwards.
    estimate.samples > 0 && (above - below).abs() <= 2
}

/// Returns the text of a range after its value: ` ± 0.90MiB`, or ` (1.55MiB to 4.70MiB)` if few
/// samples make the range uneven.
pub(crate) fn after(value: i64, estimate: &ValueEstimate, measure: &UnitFormatter) -> String {
    match is_even(value.into(), estimate) {
        // No sampled block is behind the value, and the value itself is exact.
        false if estimate.samples == 0 && value != 0 => String::new(),
        true => format!(" ± {}", measure.show(estimate.high.saturating_sub(value))),
        false if estimate.samples == 0 => format!(", below {}", measure.show(estimate.high)),
        false => format!(" ({})", between(estimate, measure)),
    }
}

/// Returns the text of a range after an estimated number of bytes, such as ` ± 0.90MiB`.
pub fn give_or_take(bytes: i64, estimate: &ValueEstimate) -> String {
    UnitFormatter::new("bytes", None).map_or_else(|_| String::new(), |m| after(bytes, estimate, &m))
}

/// Returns the range of an estimate as text: `1.55MiB to 4.70MiB`.
pub(crate) fn between(estimate: &ValueEstimate, measure: &UnitFormatter) -> String {
    format!(
        "{} to {}",
        measure.show(estimate.low),
        measure.show(estimate.high)
    )
}

/// Returns the number of samples as text: `12 samples`.
pub(crate) fn samples(estimate: &ValueEstimate) -> String {
    plural(&estimate.samples.to_string(), "sample")
}

/// Returns the cell for the range of a value, as a share of the value: `±33%`, or `-43/+73%` if few
/// samples make the range uneven. The cell is empty if the value is exact.
pub fn share(value: i64, estimate: Option<&ValueEstimate>) -> String {
    let Some(estimate) = estimate.filter(|_| value != 0) else {
        return String::new();
    };
    let share = |bound: i64| {
        let distance = i128::from(bound).abs_diff(i128::from(value));
        match 100.0 * distance as f64 / (value as f64).abs() {
            0.0 => "0".to_string(),
            share if share < 9.95 => format!("{share:.1}"),
            share => format!("{share:.0}"),
        }
    };
    match is_even(value.into(), estimate) {
        true => format!("±{}%", share(estimate.high)),
        false => format!("-{}/+{}%", share(estimate.low), share(estimate.high)),
    }
}

/// The names of the CSV columns for the range of a value. [`cells`] returns their cells.
pub(crate) const RANGE_COLUMNS: [&str; 3] = ["low", "high", "samples"];

/// Returns the cells for the lower end of a range, its upper end, and the number of samples. The
/// cells are empty if the value is exact.
pub(crate) fn cells(estimate: Option<&ValueEstimate>) -> [String; 3] {
    estimate.map_or_else(Default::default, |estimate| {
        [
            estimate.low.to_string(),
            estimate.high.to_string(),
            estimate.samples.to_string(),
        ]
    })
}

/// Returns an estimate as JSON: `{"low": …, "high": …, "samples": …}`.
pub(crate) fn document(estimate: &ValueEstimate) -> Value {
    json!({"low": estimate.low, "high": estimate.high, "samples": estimate.samples})
}

/// Adds an estimate to a JSON object as the member `key`. Adds nothing for an exact value.
pub(crate) fn insert(object: &mut Map<String, Value>, key: &str, estimate: Option<&ValueEstimate>) {
    if let Some(estimate) = estimate {
        object.insert(key.into(), document(estimate));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let measure = UnitFormatter::new("bytes", None).unwrap();
        let of = |low, high, samples| ValueEstimate { low, high, samples };
        let table = [
            (4096, of(3071, 5121, 40), " ± 1KiB", "±25%"),
            (4096, of(3990, 4202, 900), " ± 106B", "±2.6%"),
            (4096, of(2048, 9216, 5), " (2KiB to 9KiB)", "-50/+125%"),
            (0, of(0, 15_110, 0), ", below 14.76KiB", ""),
            (-4096, of(-6144, -2048, 40), " ± 2KiB", "±50%"),
        ];
        for (value, estimate, text, cell) in table {
            assert_eq!(after(value, &estimate, &measure), text);
            assert_eq!(share(value, Some(&estimate)), cell);
        }
        assert_eq!(share(4096, None), "");
        assert_eq!(cells(None), ["", "", ""]);
        assert_eq!(cells(Some(&of(-1, 2, 3))), ["-1", "2", "3"]);
        assert_eq!(samples(&of(0, 0, 1)), "1 sample");
        let document = document(&of(1, 3, 2));
        assert_eq!(document.to_string(), r#"{"low":1,"high":3,"samples":2}"#);
    }
}
