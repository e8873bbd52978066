//! `stats`: what a profile amounts to: totals, mean sizes, how large allocations were, what threads
//! hold, and which functions are first.

use std::collections::HashMap;

use crate::comment;
use crate::coverage::{self, RssBreakdown};
use crate::error::AnalysisError;
use crate::header::SampleType;
use crate::peak::peak;
use crate::place::{self, CodePlace};
use crate::session::{AnalysisSession, read_estimate};
use heapprof_totals::estimate::ValueEstimate;
use heapprof_totals::query::Granularity;

/// How many functions are first.
const MAX_FIRST_FUNCTIONS: i64 = 5;

/// How many threads have a row of their own.
const MAX_THREAD_ROWS: usize = 10;

/// A sample type with its total.
#[derive(Clone, Debug, Default)]
pub struct StatsType {
    /// What is counted.
    pub sample_type: SampleType,
    /// The signed sum of what the filters keep.
    pub net: i64,
    /// How sure it is, if it is an estimate that says so.
    pub estimate: Option<ValueEstimate>,
    /// The functions that have most of it themselves, with their values, the largest first.
    pub first: Vec<(CodePlace, i64)>,
}

/// How many objects of some sizes there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsSize {
    /// The least and the largest size in bytes; `None` for mappings, which have no size of their
    /// own.
    pub sizes: Option<[i64; 2]>,
    /// Objects that were allocated.
    pub alloc_objects: i64,
    /// Those of them that are in use.
    pub inuse_objects: i64,
}

/// What threads of one name have allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsThread {
    /// Their name; `None` for all that have no row of their own.
    pub name: Option<String>,
    /// How many numbers the kernel had for them.
    pub ids: i64,
    /// What is in use of it, in bytes.
    pub inuse_space: i64,
    /// All of it, in bytes.
    pub alloc_space: i64,
}

/// What a profile amounts to.
#[derive(Clone, Debug, Default)]
pub struct StatsReport {
    /// The profile's path or name.
    pub profile: String,
    /// Mean bytes between samples; 1 if every allocation is counted, 0 if unknown.
    pub period: i64,
    /// The sample types.
    pub types: Vec<StatsType>,
    /// When the heap was largest, in nanoseconds since the recording began, if the collector noted
    /// it.
    pub peak_since_nanos: Option<i64>,
    /// RSS when the profile was taken, and the highest one, each beside the heap.
    pub rss: [Option<RssBreakdown>; 2],
    /// The sizes of the whole process's allocations, the smallest first. Filters do not change
    /// them. Empty if the collector did not count them.
    pub sizes: Vec<StatsSize>,
    /// The threads by name, those that hold the most first, and then the others together. Empty if
    /// the recording did not keep each thread's share.
    pub threads: Vec<StatsThread>,
}

impl StatsReport {
    /// The total of a sample type.
    pub fn net(&self, name: &str) -> Option<i64> {
        let found = self.types.iter().find(|of| of.sample_type.r#type == name);
        found.map(|of| of.net)
    }

    /// The mean size of an object: of those in use, or of those that were allocated. `None` if
    /// there were none, or if the profile does not say.
    pub fn mean_size(&self, of: &str) -> Option<f64> {
        let objects = self.net(&format!("{of}_objects"))?;
        let bytes = self.net(&format!("{of}_space"))?;
        (objects > 0).then(|| bytes as f64 / objects as f64)
    }

    /// The class that the median size of all allocations is in. `None` if sizes were not counted.
    pub fn median(&self) -> Option<[i64; 2]> {
        let counted = || {
            let sizes = self.sizes.iter();
            sizes.filter_map(|of| Some((of.sizes?, i128::from(of.alloc_objects.max(0)))))
        };
        let all: i128 = counted().map(|(_, objects)| objects).sum();
        let mut below = 0;
        let holds_middle = |(_, objects): &([i64; 2], i128)| {
            below += objects;
            2 * below >= all
        };
        counted()
            .find(holds_middle)
            .map(|(sizes, _)| sizes)
            .filter(|_| all > 0)
    }
}

/// Reports what the profile of the session's question amounts to. The question must have all types.
pub fn stats(session: &AnalysisSession) -> Result<StatsReport, AnalysisError> {
    let mut found = StatsReport::default();
    session.each("SELECT name, period FROM profile WHERE id = 1", [], |row| {
        (found.profile, found.period) = (row.get(0)?, row.get(1)?);
        Ok::<_, AnalysisError>(())
    })?;
    found.types = types(session)?;
    found.peak_since_nanos = peak(session)?.and_then(|peak| peak.since_nanos);
    found.sizes = sizes(session, 1)?;
    found.threads = threads(session)?;
    // RSS is the whole process's, so the heap beside it is, too.
    let whole: HashMap<String, i64> = session
        .rows(
            "SELECT s.type, t.net FROM profile_total t JOIN sample_type s ON s.id = t.type WHERE \
             t.profile = 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .into_iter()
        .collect();
    let heap = ["inuse_space", "peak_space"].map(|name| whole.get(name).copied());
    found.rss = coverage::resident(&comment::comments(session)?, heap);
    Ok(found)
}

/// How large the allocations of a profile's process were. Profiles are numbered from 1.
pub(crate) fn sizes(
    session: &AnalysisSession,
    profile: usize,
) -> Result<Vec<StatsSize>, AnalysisError> {
    session.rows(
        "SELECT least, most, alloc_objects, inuse_objects FROM size_class WHERE profile = ?1 \
         ORDER BY least IS NULL, least",
        [profile as i64],
        |row| {
            let least: Option<i64> = row.get(0)?;
            let most: Option<i64> = row.get(1)?;
            Ok(StatsSize {
                sizes: least.zip(most).map(|(least, most)| [least, most]),
                alloc_objects: row.get(2)?,
                inuse_objects: row.get(3)?,
            })
        },
    )
}

/// What threads hold and have allocated. Only a recording that keeps each thread's share has `tid`.
/// The statement counts these labels, because SQLite would make a join of `EXISTS` and read all
/// labels again for each label set.
fn threads(session: &AnalysisSession) -> Result<Vec<StatsThread>, AnalysisError> {
    let mut threads = session.rows(
        "SELECT name, count(DISTINCT tid), \
         sum(CASE type WHEN 'inuse_space' THEN value ELSE 0 END) AS inuse, \
         sum(CASE type WHEN 'alloc_space' THEN value ELSE 0 END) AS alloc FROM \
         (SELECT label_set, min(CASE key WHEN 'thread' THEN str END) AS name, \
          min(CASE key WHEN 'tid' THEN num END) AS tid FROM label GROUP BY label_set) l JOIN \
         (SELECT s.label_set, t.type, sum(s.value) AS value FROM sample s JOIN sample_type t ON \
          t.id = s.type WHERE s.profile = 1 GROUP BY s.label_set, t.type) USING (label_set) \
         WHERE name IS NOT NULL AND (SELECT count(*) FROM label WHERE key = 'tid') > 0 \
         GROUP BY name ORDER BY inuse DESC, alloc DESC, name",
        [],
        |row| {
            Ok(StatsThread {
                name: Some(row.get(0)?),
                ids: row.get(1)?,
                inuse_space: row.get(2)?,
                alloc_space: row.get(3)?,
            })
        },
    )?;
    if threads.len() > MAX_THREAD_ROWS {
        let mut others = StatsThread::default();
        for thread in threads.drain(MAX_THREAD_ROWS..) {
            others.ids = others.ids.saturating_add(thread.ids);
            others.inuse_space = others.inuse_space.saturating_add(thread.inuse_space);
            others.alloc_space = others.alloc_space.saturating_add(thread.alloc_space);
        }
        threads.push(others);
    }
    Ok(threads)
}

fn types(session: &AnalysisSession) -> Result<Vec<StatsType>, AnalysisError> {
    let estimate = AnalysisSession::estimate_columns("t", "kept_");
    let types = session.rows(
        &format!(
            "SELECT s.id, s.type, s.unit, t.kept_net, {estimate} FROM profile_total t JOIN \
             sample_type s ON s.id = t.type WHERE t.profile = 1 ORDER BY t.position"
        ),
        [],
        |row| {
            let of = StatsType {
                sample_type: SampleType {
                    r#type: row.get(1)?,
                    unit: row.get(2)?,
                },
                net: row.get(3)?,
                estimate: read_estimate(row, 4)?,
                first: Vec::new(),
            };
            Ok((row.get::<_, i64>(0)?, of))
        },
    )?;
    // The rows of the session may be lines or addresses.
    let (functions, order) = (
        place::columns(Granularity::Functions, "t"),
        place::order(Granularity::Functions, "t"),
    );
    let with_first =
        types.into_iter().map(|(id, mut of)| {
            of.first = session.rows(
            &format!(
                "SELECT {functions}, sum(t.flat) AS flat FROM function_total t JOIN function f ON \
                 f.id = t.function WHERE t.profile = 1 AND t.type = ?1 GROUP BY {order} HAVING \
                 flat != 0 ORDER BY abs(flat) DESC, {order} LIMIT ?2"
            ),
            [id, MAX_FIRST_FUNCTIONS],
            |row| Ok((CodePlace::read(row, 0)?, row.get(place::PLACE_COLUMN_COUNT)?)),
        )?;
            Ok(of)
        });
    with_first.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_class_of_the_middle_object() {
        let with = |counts: &[(i64, i64)]| StatsReport {
            sizes: counts
                .iter()
                .map(|&(least, alloc_objects)| StatsSize {
                    sizes: (least >= 0).then_some([least, 2 * least - 1]),
                    alloc_objects,
                    inuse_objects: 0,
                })
                .collect(),
            ..StatsReport::default()
        };
        let table = [
            (&[(16, 3), (32, 3), (64, 1)][..], Some([32, 63])),
            (&[(16, 4), (32, 4)], Some([16, 31])),
            (&[(16, 1), (-1, 9)], Some([16, 31])),
            (&[(-1, 9)], None),
            (&[], None),
        ];
        for (counts, expected) in table {
            assert_eq!(with(counts).median(), expected, "{counts:?}");
        }
    }
}
