//! The report `tags`: the sums of each label's values, with a row of its own for samples without
//! the label.

use std::collections::HashMap;

use crate::error::AnalysisError;
use crate::header::{ReportHeader, header};
use crate::session::AnalysisSession;
use crate::traces::LabelValue;
use heapprof_totals::query::Query;

/// A label key with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRow {
    /// The key.
    pub key: String,
    /// The values by size, each with the sum over the samples with this value.
    pub values: Vec<(LabelValue, i64)>,
    /// The sum over the samples without this key.
    pub without: i64,
    /// The sum that was counted more than once, because samples have several values of this key; 0
    /// if no sample has several.
    pub repeated: i64,
}

/// The report `tags`.
#[derive(Clone, Debug, Default)]
pub struct TagsReport {
    /// The header of the report.
    pub header: ReportHeader,
    /// The label keys, in the order of their names.
    pub rows: Vec<TagRow>,
}

/// Reports the labels of the session's only profile.
pub fn tags(session: &AnalysisSession, query: &Query) -> Result<TagsReport, AnalysisError> {
    let (header, r#type) = header(session, 1, query)?;
    let rows: Vec<(String, LabelValue, i64)> = session.rows(
        "SELECT l.key, l.str, l.num, l.num_unit, sum(s.value) FROM label l JOIN \
         (SELECT label_set, sum(value) AS value FROM sample \
          WHERE profile = 1 AND type = ?1 GROUP BY label_set) s ON s.label_set = l.label_set \
         GROUP BY l.key, l.str, l.num, l.num_unit \
         ORDER BY l.key, abs(sum(s.value)) DESC, l.str, l.num, l.num_unit",
        [r#type],
        |row| {
            let text: String = row.get(1)?;
            let value = match text.is_empty() {
                true => LabelValue::Number(row.get(2)?, row.get(3)?),
                false => LabelValue::Text(text),
            };
            Ok((row.get(0)?, value, row.get(4)?))
        },
    )?;
    let having = session.rows(
        "SELECT l.key, sum(s.value) FROM (SELECT DISTINCT key, label_set FROM label) l JOIN \
         (SELECT label_set, sum(value) AS value FROM sample \
          WHERE profile = 1 AND type = ?1 GROUP BY label_set) s ON s.label_set = l.label_set \
         GROUP BY l.key",
        [r#type],
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)),
    )?;
    let having: HashMap<String, i64> = having.into_iter().collect();
    let mut tags: Vec<TagRow> = Vec::new();
    for (key, value, sum) in rows {
        if session
            .question
            .as_ref()
            .is_some_and(|q| !q.label_keys.shows(&key))
        {
            continue;
        }
        match tags.last_mut() {
            Some(tag) if tag.key == key => tag.values.push((value, sum)),
            _ => tags.push(TagRow {
                key,
                values: vec![(value, sum)],
                without: 0,
                repeated: 0,
            }),
        }
    }
    for tag in &mut tags {
        let having = having.get(&tag.key).copied().unwrap_or_default();
        tag.without = header.net - having;
        tag.repeated = tag.values.iter().map(|v| v.1).sum::<i64>() - having;
    }
    Ok(TagsReport { header, rows: tags })
}
