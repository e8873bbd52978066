//! The report `compare-allocators`: how much time and memory the program would need with another
//! malloc.

use std::collections::BTreeSet;

use heapprof_analysis::compare::{RunDifference, RunFigures, RunSpread, run_difference};
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::measure::{UnitFormatter, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// An allocator, and the runs of the program with this allocator.
#[derive(Clone, Debug, Default)]
pub struct AllocatorCandidate {
    /// The name of the candidate.
    pub name: String,
    /// The library that is preloaded, or the tunables that are set.
    pub what: String,
    /// The runs of the candidate.
    pub runs: Vec<RunFigures>,
    /// Whether the program had loaded the library; `None` if there is no library, or if that is not
    /// known.
    pub is_loaded: Option<bool>,
    /// The programs of child processes that ran without the library.
    pub without: BTreeSet<String>,
    /// The library of an allocator that is part of the program itself.
    pub other: Option<String>,
}

/// The memory that the program had in use in a recorded run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapInUse {
    /// The largest number of bytes that were in use in one process.
    pub peak: i64,
    /// Whether the process with this peak is the program itself, and not a child.
    pub is_main: bool,
    /// The bytes that the program itself had in use at its end.
    pub end: i64,
}

/// The candidates of a comparison of allocators, and the program that they ran.
#[derive(Clone, Debug, Default)]
pub struct AllocatorComparison {
    /// The program with its arguments.
    pub command: String,
    /// The candidates. The first one is the base for comparison.
    pub candidates: Vec<AllocatorCandidate>,
    /// The candidates that are not installed, each with the reason.
    pub missing: Vec<(String, String)>,
    /// The memory that was in use, if there is a recorded run.
    pub heap: Option<HeapInUse>,
}

type RunFigureFn = fn(&RunFigures) -> Option<i64>;

/// The figures of a run: name, unit, and function that reads the figure.
const RUN_FIGURES: [(&str, &str, RunFigureFn); 10] = [
    ("wall", "microseconds", WALL_TIME),
    ("user", "microseconds", USER_TIME),
    ("system", "microseconds", SYSTEM_TIME),
    ("peak_rss", "bytes", PEAK_RSS),
    ("hwm", "bytes", HIGH_WATER_MARK),
    ("end_rss", "bytes", END_RSS),
    ("minor_faults", "", COUNT_FIGURES[0]),
    ("major_faults", "", COUNT_FIGURES[1]),
    ("voluntary", "", COUNT_FIGURES[2]),
    ("involuntary", "", COUNT_FIGURES[3]),
];

const WALL_TIME: RunFigureFn = |run| Some(run.wall_us);
const USER_TIME: RunFigureFn = |run| Some(run.user_us);
const SYSTEM_TIME: RunFigureFn = |run| Some(run.system_us);
const PEAK_RSS: RunFigureFn = |run| Some(run.peak_rss);
const HIGH_WATER_MARK: RunFigureFn = |run| run.hwm;
const END_RSS: RunFigureFn = |run| run.end_rss;
const COUNT_FIGURES: [RunFigureFn; 4] = [
    |run| Some(run.minor_faults),
    |run| Some(run.major_faults),
    |run| Some(run.voluntary),
    |run| Some(run.involuntary),
];

fn values(candidate: &AllocatorCandidate, figure: RunFigureFn) -> Vec<i64> {
    candidate.runs.iter().filter_map(figure).collect()
}

fn median(candidate: &AllocatorCandidate, figure: RunFigureFn) -> Option<i64> {
    RunSpread::from_values(&values(candidate, figure)).map(|spread| spread.median)
}

/// Returns the number of resident bytes for each byte in use.
fn share(resident: Option<i64>, in_use: Option<i64>) -> Option<f64> {
    let (resident, in_use) = resident.zip(in_use)?;
    (in_use > 0).then(|| resident as f64 / in_use as f64)
}

/// Returns the number of resident bytes for each byte in use at the peak; `None` if RSS and the
/// heap have their peaks in different processes: one in the program itself, and one in a child.
fn at_peak(candidate: &AllocatorCandidate, heap: &HeapInUse) -> Option<f64> {
    let peak = median(candidate, PEAK_RSS)?;
    // Two counts of the kernel for the same memory may differ by some pages.
    let is_main = median(candidate, HIGH_WATER_MARK).is_some_and(|hwm| peak - hwm <= peak / 50);
    (is_main == heap.is_main).then(|| share(Some(peak), Some(heap.peak)))?
}

/// Writes the report `compare-allocators`.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn comparison(
    comparison: &AllocatorComparison,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    match style.format {
        ReportFormat::Json => return crate::json::text(document(comparison)),
        ReportFormat::Csv => return all_runs(comparison).render(style),
        ReportFormat::Text | ReportFormat::Markdown => {}
    }
    let runs = comparison
        .candidates
        .first()
        .map_or(0, |one| one.runs.len());
    let mut text = format!(
        "{}: {} with each of {}, alternating\n",
        printable(&comparison.command),
        plural(&runs.to_string(), "run"),
        plural(&comparison.candidates.len().to_string(), "allocator"),
    );
    let bytes = UnitFormatter::new("bytes", style.unit.as_deref())?;
    if let Some(heap) = &comparison.heap {
        text += &format!(
            "heap in use, from a recorded run: at most {}, at the end {}\n",
            bytes.show(heap.peak),
            bytes.show(heap.end)
        );
    }
    text += "\n";
    text += &table(comparison, &bytes)?.render(style)?;
    text += "\n";
    for line in sentences(comparison) {
        text += &format!("{}\n", printable(&line));
    }
    for candidate in &comparison.candidates {
        let (name, what) = (printable(&candidate.name), printable(&candidate.what));
        if candidate.is_loaded == Some(false) {
            text += &format!(
                "{name}: {what} was not loaded in the program when it ended, so these runs may not \
                 have used it\n"
            );
        }
        if !candidate.without.is_empty() {
            let without: Vec<&str> = candidate.without.iter().map(String::as_str).collect();
            let without = printable(&without.join(", ")).into_owned();
            text += &format!(
                "{name}: {without} ran without {what}, so these runs used it only partly\n"
            );
        }
        if let Some(other) = &candidate.other {
            let other = printable(other);
            text += &format!(
                "{name}: the program brings its own {other}, which may provide its malloc\n"
            );
        }
    }
    for (name, looked) in &comparison.missing {
        text += &format!(
            "{}: is not installed ({})\n",
            printable(name),
            printable(looked)
        );
    }
    Ok(text)
}

/// Makes the table of medians. A figure that the sentences of the report mention also has its least
/// and its largest value.
fn table(
    comparison: &AllocatorComparison,
    bytes: &UnitFormatter,
) -> Result<ReportTable, ReportError> {
    let time = UnitFormatter::new("microseconds", None)?;
    let mut table = ReportTable::new(&[
        ("allocator", ColumnAlign::Left),
        ("wall time", ColumnAlign::Right),
        ("least to most", ColumnAlign::Left),
        ("user", ColumnAlign::Right),
        ("system", ColumnAlign::Right),
        ("peak rss", ColumnAlign::Right),
        ("least to most", ColumnAlign::Left),
        ("rss at end", ColumnAlign::Right),
    ]);
    if comparison.heap.is_some() {
        table.column("rss/heap peak", ColumnAlign::Right);
        table.column("at end", ColumnAlign::Right);
    }
    for name in ["faults", "major faults", "waits", "preempted"] {
        table.column(name, ColumnAlign::Right);
    }
    for candidate in &comparison.candidates {
        let of = |figure: RunFigureFn, measure: &UnitFormatter| {
            let median = median(candidate, figure);
            median.map_or_else(String::new, |median| measure.show(median))
        };
        let range = |figure: RunFigureFn, measure: &UnitFormatter| {
            let spread = RunSpread::from_values(&values(candidate, figure));
            spread.map_or_else(String::new, |spread| {
                format!(
                    "{} to {}",
                    measure.show(spread.least),
                    measure.show(spread.most)
                )
            })
        };
        let count = UnitFormatter::raw();
        let mut cells = vec![
            candidate.name.clone(),
            of(WALL_TIME, &time),
            range(WALL_TIME, &time),
            of(USER_TIME, &time),
            of(SYSTEM_TIME, &time),
            of(PEAK_RSS, bytes),
            range(PEAK_RSS, bytes),
            of(END_RSS, bytes),
        ];
        if let Some(heap) = &comparison.heap {
            let shown = |share: Option<f64>| {
                share.map_or_else(|| "-".to_string(), |share| format!("{share:.2}"))
            };
            cells.push(shown(at_peak(candidate, heap)));
            cells.push(shown(share(median(candidate, END_RSS), Some(heap.end))));
        }
        cells.extend(COUNT_FIGURES.iter().map(|figure| of(*figure, &count)));
        table.row(cells);
    }
    Ok(table)
}

/// Returns a sentence for each candidate about its costs and savings, compared with the first
/// candidate.
fn sentences(comparison: &AllocatorComparison) -> Vec<String> {
    let Some((base, others)) = comparison.candidates.split_first() else {
        return Vec::new();
    };
    others
        .iter()
        .map(|one| {
            let by = |figure| run_difference(&values(base, figure), &values(one, figure));
            format!(
                "{}: {} (compared with {})",
                one.name,
                trade(by(WALL_TIME), by(PEAK_RSS)),
                base.name
            )
        })
        .collect()
}

fn trade(time: RunDifference, memory: RunDifference) -> String {
    let part = |by: f64| format!("{:.0} %", by.abs() * 100.0);
    let time_words = match time {
        RunDifference::By(by) if by < 0.0 => format!("{} faster", part(by)),
        RunDifference::By(by) => format!("{} slower", part(by)),
        RunDifference::None => "no difference in time".to_string(),
        RunDifference::Unknown => {
            "too few runs to compare the time (at least 5 are needed)".to_string()
        }
    };
    let memory_words = match memory {
        RunDifference::By(by) if by < 0.0 => format!("{} less memory", part(by)),
        RunDifference::By(by) => format!("{} more memory", part(by)),
        RunDifference::None => "no difference in memory".to_string(),
        RunDifference::Unknown => "too few runs to compare the memory".to_string(),
    };
    match (time, memory) {
        (RunDifference::None, RunDifference::None) => "no difference".to_string(),
        (RunDifference::Unknown, RunDifference::Unknown) => {
            "too few runs to compare (at least 5 are needed)".to_string()
        }
        _ => format!("{time_words}, {memory_words}"),
    }
}

/// Makes the table for programs, with a row for each run.
fn all_runs(comparison: &AllocatorComparison) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("allocator", ColumnAlign::Left),
        ("run", ColumnAlign::Right),
    ]);
    for (name, unit, _) in RUN_FIGURES {
        let unit = match unit {
            "microseconds" => "_us",
            _ => "",
        };
        table.column(format!("{name}{unit}"), ColumnAlign::Right);
    }
    for candidate in &comparison.candidates {
        for (i, run) in candidate.runs.iter().enumerate() {
            let mut cells = vec![candidate.name.clone(), (i + 1).to_string()];
            cells.extend(RUN_FIGURES.iter().map(|(_, _, figure)| {
                figure(run).map_or_else(String::new, |value| value.to_string())
            }));
            table.row(cells);
        }
    }
    table
}

fn document(comparison: &AllocatorComparison) -> Value {
    let base = comparison.candidates.first();
    let difference = |candidate: &AllocatorCandidate, figure: RunFigureFn| {
        let base = base.map(|base| values(base, figure)).unwrap_or_default();
        match run_difference(&base, &values(candidate, figure)) {
            RunDifference::By(by) => json!(by),
            RunDifference::None => json!(0.0),
            RunDifference::Unknown => Value::Null,
        }
    };
    let words = sentences(comparison);
    let candidates = comparison
        .candidates
        .iter()
        .enumerate()
        .map(|(i, candidate)| {
            let figures = RUN_FIGURES.iter().map(|(name, unit, figure)| {
                let values = values(candidate, *figure);
                let spread = RunSpread::from_values(&values);
                let value = json!({
                    "unit": unit, "runs": values, "median": spread.map(|spread| spread.median),
                    "least": spread.map(|spread| spread.least),
                    "most": spread.map(|spread| spread.most),
                    "difference": difference(candidate, *figure),
                });
                ((*name).to_string(), value)
            });
            let heap = comparison.heap;
            json!({
                "name": candidate.name, "what": candidate.what, "loaded": candidate.is_loaded,
            "without": candidate.without, "other": candidate.other,
                "figures": figures.collect::<serde_json::Map<_, _>>(),
                "rss_per_heap_at_peak": heap.and_then(|heap| at_peak(candidate, &heap)),
                "rss_per_heap_at_end": share(median(candidate, END_RSS), heap.map(|heap| heap.end)),
                "sentence": i.checked_sub(1).and_then(|i| words.get(i)),
            })
        });
    let missing = comparison.missing.iter();
    json!({
        "command": comparison.command,
        "heap_in_use": comparison.heap.map(|heap| json!({"peak": heap.peak, "end": heap.end})),
        "missing": missing
            .map(|(name, looked)| json!({"name": name, "looked_for": looked}))
            .collect::<Vec<_>>(),
        "candidates": candidates.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, wall_us: i64, peak_rss: i64) -> AllocatorCandidate {
        let run = |i: i64| RunFigures {
            wall_us: wall_us + i,
            peak_rss,
            hwm: Some(peak_rss),
            end_rss: Some(peak_rss / 2),
            ..RunFigures::default()
        };
        AllocatorCandidate {
            name: name.to_string(),
            runs: (0..7).map(run).collect(),
            ..AllocatorCandidate::default()
        }
    }

    #[test]
    fn the_trade_is_told_in_a_sentence() {
        let all = AllocatorComparison {
            command: "churn".to_string(),
            candidates: vec![
                candidate("glibc", 100_000, 100 << 20),
                candidate("tcmalloc", 69_000, 118 << 20),
                candidate("same", 100_001, 100 << 20),
                candidate("slow", 150_000, 100 << 20),
                candidate("small", 100_002, 40 << 20),
            ],
            missing: vec![("hoard".to_string(), "libhoard.so".to_string())],
            heap: Some(HeapInUse {
                peak: 50 << 20,
                is_main: true,
                end: 25 << 20,
            }),
        };
        assert_eq!(
            sentences(&all),
            [
                "tcmalloc: 31 % faster, 18 % more memory (compared with glibc)",
                "same: no difference (compared with glibc)",
                "slow: 50 % slower, no difference in memory (compared with glibc)",
                "small: no difference in time, 60 % less memory (compared with glibc)",
            ]
        );
        let text = comparison(&all, &ReportStyle::default()).unwrap();
        assert!(
            text.contains("hoard: is not installed (libhoard.so)"),
            "{text}"
        );
        assert!(text.contains("  2.00    2.00 "), "{text}");
        let mut few = all.clone();
        few.candidates
            .iter_mut()
            .for_each(|one| one.runs.truncate(3));
        assert!(sentences(&few)[0].contains("too few runs to compare"));
        let style = ReportStyle {
            format: ReportFormat::Csv,
            ..ReportStyle::default()
        };
        assert_eq!(comparison(&all, &style).unwrap().lines().count(), 1 + 5 * 7);
    }
}
