//! The report `stats`, a summary of a profile with totals, mean sizes, sizes of allocations, memory
//! of threads, and the first functions.

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

/// Maximum number of functions that are listed for each sample type.
const MAX_FIRST_FUNCTIONS: i64 = 5;

/// Maximum number of threads that have a row of their own.
const MAX_THREAD_ROWS: usize = 10;

/// A sample type with its total.
#[derive(Clone, Debug, Default)]
pub struct StatsType {
    /// The sample type.
    pub sample_type: SampleType,
    /// The signed sum over the samples that the filters keep.
    pub net: i64,
    /// The range of the sum, if it is an estimate whose range is known.
    pub estimate: Option<ValueEstimate>,
    /// The functions with the largest flat values, and these values.
    pub first: Vec<(CodePlace, i64)>,
}

/// The number of objects in a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsSize {
    /// The least and the largest size, in bytes; `None` for mappings, which have no size class.
    pub sizes: Option<[i64; 2]>,
    /// The number of objects that were allocated.
    pub alloc_objects: i64,
    /// The number of objects that are still in use.
    pub inuse_objects: i64,
}

/// The allocations of all threads with one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsThread {
    /// The name of the threads; `None` for all threads that have no row of their own.
    pub name: Option<String>,
    /// The number of thread ids with this name.
    pub ids: i64,
    /// The bytes in use that these threads allocated.
    pub inuse_space: i64,
    /// All bytes that these threads allocated.
    pub alloc_space: i64,
}

/// The report `stats`.
#[derive(Clone, Debug, Default)]
pub struct StatsReport {
    /// The profile's path or name.
    pub profile: String,
    /// The mean number of bytes between samples; 1 if every allocation is counted, 0 if unknown.
    pub period: i64,
    /// The sample types.
    pub types: Vec<StatsType>,
    /// The time when the heap was largest, in nanoseconds since the recording began, if the
    /// collector recorded it.
    pub peak_since_nanos: Option<i64>,
    /// The RSS when the profile was taken, and the highest RSS, each with the heap at that time.
    pub rss: [Option<RssBreakdown>; 2],
    /// The size histogram of the whole process's allocations, the smallest sizes first. Filters do
    /// not change it. It is empty if the collector did not count sizes.
    pub sizes: Vec<StatsSize>,
    /// The threads by name, with the most memory in use first. If there are too many names, the
    /// last row is the sum of all further threads. The list is empty if the recording did not keep
    /// each thread's share.
    pub threads: Vec<StatsThread>,
}

impl StatsReport {
    /// Returns the total of a sample type; `None` if the profile does not have it.
    pub fn net(&self, name: &str) -> Option<i64> {
        let found = self.types.iter().find(|of| of.sample_type.r#type == name);
        found.map(|of| of.net)
    }

    /// Returns the mean size of an object. `of` is `inuse` or `alloc`. Returns `None` if there are
    /// no objects, or if the profile does not have these types.
    pub fn mean_size(&self, of: &str) -> Option<f64> {
        let objects = self.net(&format!("{of}_objects"))?;
        let bytes = self.net(&format!("{of}_space"))?;
        (objects > 0).then(|| bytes as f64 / objects as f64)
    }

    /// Returns the size class that contains the median size of all allocations; `None` if sizes
    /// were not counted.
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

/// Reports a summary of the profile that the session's question is about. The question must have
/// been made with `TypeSelection::All`.
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
    // RSS is of the whole process, so the heap beside it must be, too.
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

/// Returns the size histogram of a profile's process. Profiles are numbered from 1.
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

/// Returns the memory in use and the allocations of threads. The result is empty if the recording
/// did not keep each thread's share, because then there are no labels `tid`. The statement counts
/// these labels and does not use `EXISTS`, because SQLite would turn `EXISTS` into a join that
/// reads all labels again for each label set.
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
    // The rows of the session may be lines or addresses, so its granularity is not used.
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
