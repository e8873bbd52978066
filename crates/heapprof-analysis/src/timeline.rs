//! `timeline`: the heap over time. For one profile that is the history that the collector noted,
//! and for several one row for each.

use crate::comment;
use crate::coverage;
use crate::error::Error;
use crate::header::SampleType;
use crate::session::Session;

/// A moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelineRow {
    /// The profile whose moment it is; empty in the history of one profile.
    pub profile: String,
    /// Nanoseconds since the first moment.
    pub since_nanos: i64,
    /// Nanoseconds since 1970 UTC; 0 if unknown.
    pub time_nanos: i64,
    /// Bytes in use. `None` where it is not known.
    pub inuse_space: Option<i64>,
    /// Objects in use. `None` where it is not known.
    pub inuse_objects: Option<i64>,
    /// Bytes of the process in memory. `None` where it is not known.
    pub rss: Option<i64>,
    /// Whether the heap was largest then.
    pub is_peak: bool,
}

/// The heap over time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The names of the profiles.
    pub profiles: Vec<String>,
    /// The moments, in order of time.
    pub rows: Vec<TimelineRow>,
    /// Whether the rows are the history of one profile.
    pub is_history: bool,
    /// Whether values are estimates.
    pub is_sampled: bool,
}

/// Reports the heap over time of all profiles of the session's question, which must have all types.
pub fn timeline(session: &Session) -> Result<Timeline, Error> {
    let mut found = Timeline::default();
    session.each(
        "SELECT name, period_type, period FROM profile ORDER BY id",
        [],
        |row| {
            found.profiles.push(row.get(0)?);
            let by: String = row.get(1)?;
            found.is_sampled |= by == "space" && row.get::<_, i64>(2)? > 1;
            Ok::<_, Error>(())
        },
    )?;
    found.is_history = found.profiles.len() == 1;
    found.rows = match found.is_history {
        true => history(session)?,
        false => series(session)?,
    };
    Ok(found)
}

/// The history of the first profile; empty if it has none.
pub(crate) fn history(session: &Session) -> Result<Vec<TimelineRow>, Error> {
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

fn series(session: &Session) -> Result<Vec<TimelineRow>, Error> {
    let types = session.rows("SELECT type, unit FROM sample_type", [], |row| {
        Ok(SampleType {
            r#type: row.get(0)?,
            unit: row.get(1)?,
        })
    })?;
    if !types.iter().any(|of| of.r#type == "inuse_space") {
        return Err(Error::NotInUse {
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
    let first = rows.first().map_or(0, |(_, row)| row.time_nanos);
    let most = rows.iter().filter_map(|(_, row)| row.inuse_space).max();
    let mut has_peak = false;
    for (id, row) in &mut rows {
        let comments = comment::comments_of(session, *id)?;
        let [at_end, _] = coverage::resident(&comments, [None, None]);
        row.rss = at_end.map(coverage::Resident::of_program);
        if first != 0 {
            row.since_nanos = row.time_nanos.saturating_sub(first);
        }
        row.is_peak = !has_peak && row.inuse_space == most;
        has_peak |= row.is_peak;
    }
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}
