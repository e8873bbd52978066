//! The report `traces`: each stack with its labels and value, the largest first.

use crate::error::AnalysisError;
use crate::header::{ReportHeader, header};
use crate::place::{PlaceId, PlaceTable, StackReader};
use crate::session::AnalysisSession;
use heapprof_totals::query::Query;

/// A stack with one set of labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceRow {
    /// The sum of the samples with this stack and these labels.
    pub value: i64,
    /// The frames, leaf first.
    pub stack: Vec<PlaceId>,
    /// The keys and values of the labels that are shown.
    pub labels: Vec<(String, LabelValue)>,
}

/// The value of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LabelValue {
    /// A text.
    Text(String),
    /// A number and its unit, which may be empty.
    Number(i64, String),
}

/// The report `traces`.
#[derive(Clone, Debug, Default)]
pub struct TracesReport {
    /// The header of the report.
    pub header: ReportHeader,
    /// The places that the ids in [`TraceRow::stack`] refer to.
    pub places: PlaceTable,
    /// The stacks, by size, the largest first.
    pub rows: Vec<TraceRow>,
    /// The sum of the stacks that the limit left out, and the number of these stacks.
    pub other: (i64, usize),
}

/// Reports the stacks of the session's only profile.
pub fn traces(session: &AnalysisSession, query: &Query) -> Result<TracesReport, AnalysisError> {
    let (header, r#type) = header(session, 1, query)?;
    let samples: Vec<(i64, i64, i64)> = session.rows(
        "SELECT stack, label_set, value FROM sample WHERE profile = 1 AND type = ?1",
        [r#type],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let labels = label_sets(session)?;
    let mut keyed: Vec<(i64, i64, TraceLabels)> = samples
        .into_iter()
        .map(|(stack, set, value)| (value, stack, labels.get(&set).cloned().unwrap_or_default()))
        .collect();
    // Traces that differ only in hidden labels are merged.
    keyed.sort_by(|a, b| (a.1, &a.2).cmp(&(b.1, &b.2)));
    keyed.dedup_by(|next, kept| {
        let same = (next.1, &next.2) == (kept.1, &kept.2);
        if same {
            kept.0 += next.0;
        }
        same
    });
    // The order of label sets changes when a profile is loaded. The order of their texts does not.
    keyed.sort_by_key(|trace| std::cmp::Reverse(trace.0.unsigned_abs()));
    let shown = query.limit.unwrap_or(usize::MAX).min(keyed.len());
    let rest = keyed.split_off(shown);
    let read = StackReader::new(session);
    let rows = keyed
        .into_iter()
        .map(|(value, stack, labels)| {
            let stack = read.read(stack)?;
            Ok(TraceRow {
                value,
                stack,
                labels,
            })
        })
        .collect::<Result<_, AnalysisError>>()?;
    Ok(TracesReport {
        header,
        places: PlaceTable::for_stacks(session, query.granularity)?,
        rows,
        other: (rest.iter().map(|r| r.0).sum(), rest.len()),
    })
}

type TraceLabels = Vec<(String, LabelValue)>;

/// Returns, for each label set, the labels that the filters show.
fn label_sets(
    session: &AnalysisSession,
) -> Result<std::collections::HashMap<i64, TraceLabels>, AnalysisError> {
    let mut sets = std::collections::HashMap::new();
    session.rows(
        "SELECT label_set, key, str, num, num_unit FROM label ORDER BY label_set, position",
        [],
        |row| {
            let key: String = row.get(1)?;
            let text: String = row.get(2)?;
            let value = match text.is_empty() {
                true => LabelValue::Number(row.get(3)?, row.get(4)?),
                false => LabelValue::Text(text),
            };
            let seen = session
                .question
                .as_ref()
                .is_none_or(|q| q.label_keys.shows(&key));
            if seen {
                sets.entry(row.get::<_, i64>(0)?)
                    .or_insert_with(Vec::new)
                    .push((key, value));
            }
            Ok(())
        },
    )?;
    Ok(sets)
}
