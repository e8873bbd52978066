//! The report `bench`: the peak of each candidate, to the byte.

use serde_json::json;

use crate::error::ReportError;
use crate::measure::UnitFormatter;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// A candidate and the peaks of its recorded runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidatePeaks {
    /// The candidate's name or command, as the user gave it.
    pub name: String,
    /// The peak of each run, in bytes.
    pub peaks: Vec<i64>,
    /// Whether these peaks include the peak of [`PeakComparison::empty`], which the report then
    /// subtracts.
    pub has_empty: bool,
    /// The function or line that had the most bytes at the peak, and these bytes.
    pub most: Option<(String, i64)>,
}

impl CandidatePeaks {
    /// Returns the least and the largest peak of the runs.
    fn range(&self) -> (i64, i64) {
        let least = self.peaks.iter().min().copied().unwrap_or(0);
        (least, self.peaks.iter().max().copied().unwrap_or(0))
    }
}

/// The candidates of a comparison, and the empty candidate, whose peak is subtracted from the other
/// peaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeakComparison {
    /// The candidate that does nothing, if there is one: its name and its peak.
    pub empty: Option<(String, i64)>,
    /// The candidates, in the order in which they were given.
    pub candidates: Vec<CandidatePeaks>,
}

/// Returns a factor as text, with two decimal places below 100.
fn times(times: f64) -> String {
    match times < 100.0 {
        true => format!("{times:.2}"),
        false => format!("{times:.0}"),
    }
}

/// Writes the report `bench`.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn peaks(peaks: &PeakComparison, style: &ReportStyle) -> Result<String, ReportError> {
    let base = peaks.empty.as_ref().map_or(0, |(_, peak)| *peak);
    // A run whose peak is below that of the empty candidate counts as 0.
    let above = |one: &CandidatePeaks, peak: i64| match one.has_empty {
        true => peak.saturating_sub(base).max(0),
        false => peak,
    };
    if style.format == ReportFormat::Json {
        let rows = peaks.candidates.iter().map(|one| {
            json!({
                "candidate": one.name, "peaks": one.peaks,
                "above_empty": one.peaks.iter().map(|&peak| above(one, peak)).collect::<Vec<_>>(),
                "most": one.most.as_ref().map(|(name, bytes)| json!({"place": name, "bytes": bytes})),
            })
        });
        let empty = peaks.empty.as_ref();
        return crate::json::text(json!({
            "empty": empty.map(|(name, peak)| json!({"candidate": name, "peak": peak})),
            "rows": rows.collect::<Vec<_>>(),
        }));
    }
    let measure = UnitFormatter::bytes(style)?;
    let several = peaks.candidates.iter().any(|one| one.peaks.len() > 1);
    let mut table = ReportTable::new(&[("peak", ColumnAlign::Right)]);
    if peaks.empty.is_some() {
        table.column("above empty", ColumnAlign::Right);
    }
    if several {
        table.column("least", ColumnAlign::Right);
        table.column("most", ColumnAlign::Right);
    }
    table.column("ratio", ColumnAlign::Right);
    table.column("candidate", ColumnAlign::Left);
    table.column("largest part", ColumnAlign::Left);
    let least = peaks
        .candidates
        .iter()
        .map(|one| above(one, one.range().1))
        .min();
    for one in &peaks.candidates {
        let (low, high) = one.range();
        let mut cells = vec![measure.show(high)];
        if peaks.empty.is_some() {
            cells.push(measure.show(above(one, high)));
        }
        if several {
            cells.extend([measure.show(low), measure.show(high)]);
        }
        cells.push(match least.filter(|least| *least > 0) {
            Some(least) => times(above(one, high) as f64 / least as f64),
            None => String::new(),
        });
        cells.push(one.name.clone());
        let of = |(name, bytes): &(String, i64)| format!("{} {name}", measure.show(*bytes));
        cells.push(one.most.as_ref().map_or_else(String::new, of));
        table.row(cells);
    }
    if style.format == ReportFormat::Text {
        table.cut_last(60);
    }
    let mut text = table.render(style)?;
    if let (ReportFormat::Text, Some((name, peak))) = (style.format, &peaks.empty) {
        let name = heapprof_text::printable(name);
        text += &format!("empty: {} ({name})\n", measure.show(*peak));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_told_above_the_empty_one() {
        let one = |name: &str, peaks: &[i64]| CandidatePeaks {
            name: name.to_string(),
            peaks: peaks.to_vec(),
            has_empty: true,
            most: Some(("(main) -e:1".to_string(), peaks[0] / 2)),
        };
        let mut all = PeakComparison {
            empty: Some(("nothing".to_string(), 1024)),
            candidates: vec![one("a", &[3072]), one("b", &[7168]), one("c", &[512])],
        };
        expect_test::expect![[r"
            peak  above empty  ratio  candidate  largest part
            3KiB         2KiB         a          1.50KiB (main) -e:1
            7KiB         6KiB         b          3.50KiB (main) -e:1
            512B           0B         c          256B (main) -e:1
            empty: 1KiB (nothing)
        "]]
        .assert_eq(&peaks(&all, &ReportStyle::default()).unwrap());
        all.candidates.pop();
        all.candidates[0].peaks.push(2048);
        let text = peaks(&all, &ReportStyle::default()).unwrap();
        assert!(text.contains("2KiB  3KiB   1.00  a"), "{text}");
        assert!(text.contains("7KiB  7KiB   3.00  b"), "{text}");
    }
}
