//! The report `timeline`: the heap over time. For one profile it shows the history that the
//! collector recorded. For several profiles it shows one row for each profile.

use crate::comment;
use crate::coverage;
use crate::error::AnalysisError;
use crate::header::SampleType;
use crate::peak::{LargestHeap, peak};
use crate::session::AnalysisSession;

/// A row of the timeline: one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelineRow {
    /// The name of the moment's profile; empty in the history of one profile.
    pub profile: String,
    /// The time in nanoseconds since the first moment.
    pub since_nanos: i64,
    /// The time in nanoseconds since 1970 UTC; 0 if unknown.
    pub time_nanos: i64,
    /// The bytes in use; `None` if not known.
    pub inuse_space: Option<i64>,
    /// The objects in use; `None` if not known.
    pub inuse_objects: Option<i64>,
    /// The resident bytes of the process; `None` if not known.
    pub rss: Option<i64>,
    /// Whether the heap was largest at this moment.
    pub is_peak: bool,
}

/// The report `timeline`.
#[derive(Clone, Debug, Default)]
pub struct TimelineReport {
    /// The names of the profiles.
    pub profiles: Vec<String>,
    /// The moments, in order of time.
    pub rows: Vec<TimelineRow>,
    /// Whether the rows are the history of one profile.
    pub is_history: bool,
    /// Whether values are estimates.
    pub is_sampled: bool,
    /// The time and the size of the largest heap.
    pub peak: Option<TimelinePeak>,
}

/// The largest heap of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelinePeak {
    /// The bytes in use at the peak.
    pub bytes: i64,
    /// The time of the peak in nanoseconds since the first moment, if it is known.
    pub since_nanos: Option<i64>,
}

/// Reports the heap over time of all profiles that the session's question is about. The question
/// must have been made with `TypeSelection::All`.
pub fn timeline(session: &AnalysisSession) -> Result<TimelineReport, AnalysisError> {
    let mut found = TimelineReport::default();
    session.each(
        "SELECT name, period_type, period FROM profile ORDER BY id",
        [],
        |row| {
            found.profiles.push(row.get(0)?);
            let by: String = row.get(1)?;
            found.is_sampled |= by == "space" && row.get::<_, i64>(2)? > 1;
            Ok::<_, AnalysisError>(())
        },
    )?;
    found.is_history = found.profiles.len() == 1;
    let peak = peak(session)?;
    found.rows = match found.is_history {
        true => history(session)?,
        false => series(session, peak)?,
    };
    let row = found.rows.iter().find(|row| row.is_peak);
    let of_rows = row.and_then(|row| row.inuse_space);
    found.peak = peak.map(|peak| peak.bytes).max(of_rows).map(|bytes| {
        let is_it = |_: &&TimelineRow| found.is_history || of_rows == Some(bytes);
        TimelinePeak {
            bytes,
            since_nanos: row.filter(is_it).map(|row| row.since_nanos),
        }
    });
    Ok(found)
}

/// Returns the history of the first profile; empty if the profile has none.
pub(crate) fn history(session: &AnalysisSession) -> Result<Vec<TimelineRow>, AnalysisError> {
    session.rows(
        "SELECT since_nanos, time_nanos, inuse_space, inuse_objects, rss, is_peak FROM moment \
         WHERE profile = 1 ORDER BY since_nanos",
        [],
        |row| {
            Ok(TimelineRow {
                profile: String::new(),
                since_nanos: row.get(0)?,
                time_nanos: row.get(1)?,
                inuse_space: row.get(2)?,
                inuse_objects: row.get(3)?,
                rss: row.get(4)?,
                is_peak: row.get(5)?,
            })
        },
    )
}

/// Makes one row for each profile. If the heap was larger between two profiles than in any profile,
/// the peak gets a row of its own, provided that its time is known.
fn series(
    session: &AnalysisSession,
    peak: Option<LargestHeap>,
) -> Result<Vec<TimelineRow>, AnalysisError> {
    let types = session.rows("SELECT type, unit FROM sample_type", [], |row| {
        Ok(SampleType {
            r#type: row.get(0)?,
            unit: row.get(1)?,
        })
    })?;
    if !types.iter().any(|of| of.r#type == "inuse_space") {
        return Err(AnalysisError::NotInUse {
            missing: "inuse_space".to_string(),
            present: types.into_iter().map(|of| of.r#type).collect(),
        });
    }
    let mut rows = session.rows(
        "SELECT p.id, p.name, p.time_nanos, (SELECT t.net FROM profile_total t JOIN sample_type s \
         ON s.id = t.type WHERE t.profile = p.id AND s.type = 'inuse_space'), (SELECT t.net FROM \
         profile_total t JOIN sample_type s ON s.id = t.type WHERE t.profile = p.id AND s.type = \
         'inuse_objects') FROM profile p ORDER BY p.time_nanos, p.id",
        [],
        |row| {
            let of = TimelineRow {
                profile: row.get(1)?,
                time_nanos: row.get(2)?,
                inuse_space: row.get(3)?,
                inuse_objects: row.get(4)?,
                ..TimelineRow::default()
            };
            Ok((row.get::<_, i64>(0)?, of))
        },
    )?;
    let largest = rows.iter().filter_map(|(_, row)| row.inuse_space).max();
    let beyond = peak.filter(|peak| Some(peak.bytes) > largest);
    let named_by = beyond.map(|peak| peak.profile as i64 + 1);
    let mut of_peak = TimelineRow {
        inuse_space: beyond.map(|peak| peak.bytes),
        is_peak: true,
        ..TimelineRow::default()
    };
    for (id, row) in &mut rows {
        let comments = comment::comments_of(session, *id)?;
        let resident = coverage::resident(&comments, [None, None]);
        let [at_end, at_peak] = resident.map(|of| of.map(coverage::RssBreakdown::program_bytes));
        row.rss = at_end;
        if Some(*id) == named_by {
            (of_peak.profile, of_peak.rss) = (row.profile.clone(), at_peak);
        }
    }
    let mut rows: Vec<TimelineRow> = rows.into_iter().map(|(_, row)| row).collect();
    match beyond.map(|peak| peak.time_nanos) {
        None => {
            let at = rows.iter().position(|row| row.inuse_space == largest);
            if let Some(row) = at.and_then(|at| rows.get_mut(at)) {
                row.is_peak = true;
            }
        }
        Some(Some(time_nanos)) => {
            let at = rows.partition_point(|row| row.time_nanos < time_nanos);
            of_peak.time_nanos = time_nanos;
            rows.insert(at, of_peak);
        }
        Some(None) => {}
    }
    let first = rows.first().map_or(0, |row| row.time_nanos);
    for row in rows.iter_mut().filter(|_| first != 0) {
        row.since_nanos = row.time_nanos.saturating_sub(first);
    }
    Ok(rows)
}
