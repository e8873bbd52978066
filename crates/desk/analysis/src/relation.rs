//! The tables of a question, as SQLite sees them: read-only virtual tables over computed results.
//!
//! A `Relation` is a name, documented columns, and three functions. Its first `keys` columns are
//! whole numbers. SQLite can find rows by them without reading all rows.

mod fork;
mod history;
mod profile;
mod sample;
mod total;
mod tree;
mod vtab;

use std::ops::Range;

use crate::error::AnalysisError;
use crate::question::ProfileQuestion;
use heapprof_totals::estimate::{SumSpread, ValueEstimate};

pub(crate) use fork::{FORK_CHILD, FORK_LOAD};
pub(crate) use vtab::connect;

/// A value in a row.
pub(crate) enum RelationCell<'a> {
    Null,
    Int(i64),
    Real(f64),
    Text(&'a str),
}

/// Returns one cell of a value's estimate. The columns are samples, variance, least and most, in
/// this order. The cell is NULL if the value is exact.
fn estimate_cell(
    estimate: Option<ValueEstimate>,
    spread: SumSpread,
    column: usize,
) -> RelationCell<'static> {
    let Some(estimate) = estimate else {
        return RelationCell::Null;
    };
    match column {
        0 => RelationCell::Int(i64::try_from(estimate.samples).unwrap_or(i64::MAX)),
        1 => RelationCell::Real(spread.variance),
        2 => estimate.low.into(),
        _ => estimate.high.into(),
    }
}

impl From<i64> for RelationCell<'_> {
    fn from(value: i64) -> Self {
        RelationCell::Int(value)
    }
}

impl From<usize> for RelationCell<'_> {
    fn from(value: usize) -> Self {
        RelationCell::Int(value as i64)
    }
}

impl From<u32> for RelationCell<'_> {
    fn from(value: u32) -> Self {
        RelationCell::Int(i64::from(value))
    }
}

impl From<u64> for RelationCell<'_> {
    /// Converts an address to a signed number, because SQLite has no unsigned ones. Addresses from
    /// 2^63 on become negative.
    fn from(value: u64) -> Self {
        RelationCell::Int(value as i64)
    }
}

impl From<bool> for RelationCell<'_> {
    fn from(value: bool) -> Self {
        RelationCell::Int(i64::from(value))
    }
}

impl<'a> From<&'a str> for RelationCell<'a> {
    fn from(value: &'a str) -> Self {
        RelationCell::Text(value)
    }
}

/// A column: its name with SQLite's type, and its meaning.
pub(crate) type RelationColumn = (&'static str, &'static str);

/// A table of a question.
pub(crate) struct Relation {
    pub(crate) name: &'static str,
    /// The meaning of a row.
    pub(crate) about: &'static str,
    pub(crate) columns: &'static [RelationColumn],
    /// The number of columns, from the first on, by which rows can be found.
    pub(crate) keys: usize,
    /// The columns by which the rows are already sorted, within each group of rows that are equal
    /// in all earlier columns. SQLite need not sort by these columns.
    pub(crate) ordered: Range<usize>,
    pub(crate) rows: fn(&ProfileQuestion) -> Result<usize, AnalysisError>,
    /// Returns the rows whose first columns equal the given numbers. There is at least one number.
    pub(crate) narrow: fn(&ProfileQuestion, &[i64]) -> Range<usize>,
    pub(crate) cell: for<'a> fn(&'a ProfileQuestion, usize, usize) -> RelationCell<'a>,
}

/// All tables, in the order of the documentation.
pub(crate) static RELATIONS: [&Relation; 21] = [
    &profile::PROFILE,
    &profile::COMMENT,
    &profile::SAMPLE_TYPE,
    &profile::PROFILE_TOTAL,
    &profile::MAPPING,
    &profile::LOCATION,
    &profile::LINE,
    &profile::FUNCTION,
    &profile::LABEL,
    &history::MOMENT,
    &history::SIZE_CLASS,
    &fork::FORK_CHILD,
    &fork::FORK_LOAD,
    &fork::FORK_UNSHARED,
    &total::ENTITY,
    &total::FUNCTION_TOTAL,
    &total::NEIGHBOUR,
    &tree::NODE,
    &sample::SAMPLE,
    &sample::FRAME,
    &sample::STACK_FUNCTION,
];

/// The name of a table or a view, the meaning of a row, and the columns with their meanings.
type DocumentedTable = (&'static str, &'static str, &'static [RelationColumn]);

/// The views. The database of stored profiles has them, too.
const DOCUMENTED_VIEWS: [DocumentedTable; 3] = [
    (
        "profile_report",
        "View: profile_total with names.",
        &[
            ("profile TEXT", "profile.name"),
            ("sample_type TEXT", "sample_type.type"),
            ("unit TEXT", "sample_type.unit"),
            ("total INTEGER", "sum regardless of sign"),
            ("net INTEGER", "signed sum"),
        ],
    ),
    (
        "function_report",
        "View: function_total with names.",
        &[
            ("profile TEXT", "profile.name"),
            ("sample_type TEXT", "sample_type.type"),
            ("unit TEXT", "sample_type.unit"),
            ("function TEXT", "function.name"),
            ("flat INTEGER", "as in function_total"),
            ("cum INTEGER", "as in function_total"),
            ("module TEXT", "function.module"),
            ("is_library INTEGER", "function.is_library"),
            ("file TEXT", "function.filename"),
        ],
    ),
    (
        "snapshot",
        "View: a profile that names its process, as a moment of that process.",
        &[
            ("id INTEGER", "profile.id"),
            ("profile TEXT", "profile.name"),
            ("program TEXT", "as the collector records it"),
            ("pid TEXT", "as the collector records it"),
            ("host TEXT", "as the collector records it, may be empty"),
            (
                "start_nanos INTEGER",
                "when the recording began, nanoseconds since 1970 UTC",
            ),
            ("time_nanos INTEGER", "when the values were taken"),
            ("duration_nanos INTEGER", "from start_nanos to time_nanos"),
            ("snapshot INTEGER", "from 1, in the order of time"),
            ("snapshots INTEGER", "how many of this process there are"),
        ],
    ),
];

/// Whether a question has a table with this name.
pub(crate) fn is_table(name: &str) -> bool {
    RELATIONS.iter().any(|relation| relation.name == name)
}

/// Returns the documented tables and views.
pub fn documented_tables() -> impl Iterator<Item = DocumentedTable> {
    let tables = RELATIONS.iter().map(|r| (r.name, r.about, r.columns));
    tables.chain(DOCUMENTED_VIEWS)
}

/// Returns the one row with this number, counted from 1.
fn single_row(number: i64, rows: usize) -> Range<usize> {
    match usize::try_from(number) {
        Ok(n) if (1..=rows).contains(&n) => n - 1..n,
        _ => 0..0,
    }
}

/// Returns all rows, for relations that are always read whole.
fn all_rows(_: &ProfileQuestion, _: &[i64]) -> Range<usize> {
    0..usize::MAX
}

/// Finds a row in a table that has the rows of each part one after the other. Returns the part that
/// `row` belongs to, and the row's position in that part.
fn in_part(question: &ProfileQuestion, row: usize, len: impl Fn(usize) -> usize) -> (usize, usize) {
    let mut rest = row;
    for part in 0..question.parts.len() {
        let n = len(part);
        if rest < n {
            return (part, rest);
        }
        rest -= n;
    }
    unreachable!("a row beyond the table")
}

/// Returns the number of rows before part `part`.
fn rows_before_part(part: usize, len: impl Fn(usize) -> usize) -> usize {
    (0..part).map(len).sum()
}

/// Returns the rows of one profile in a table that has the rows of each profile one after the
/// other.
fn rows_of_part(
    question: &ProfileQuestion,
    profile: i64,
    len: impl Fn(usize) -> usize,
) -> Range<usize> {
    let part = single_row(profile, question.parts.len());
    if part.is_empty() {
        return 0..0;
    }
    let first = rows_before_part(part.start, &len);
    first..first + len(part.start)
}

/// Returns the rows that have this key, in a table that is sorted by it.
fn rows_with_key<T>(rows: &[T], key: i64, key_of: impl Fn(&T) -> i64) -> Range<usize> {
    let first = rows.partition_point(|row| key_of(row) < key);
    let count = rows[first..].partition_point(|row| key_of(row) == key);
    first..first + count
}
