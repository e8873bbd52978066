//! A database of profiles in plain tables that `sqlite3` reads, with stacks that all profiles
//! share.

mod damage;
mod fork;
mod guard;
mod heap;
#[cfg(test)]
mod hostile;
mod load;
mod locations;
mod remove;
mod restore;
mod sample_rows;
mod schema;
mod series;
mod stack_tree;
mod watch;
mod wiretap;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heapprof_profile::{Profile, default_sample_type};
use heapprof_totals::query::Query;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::comment::{ProfiledProcess, find_single_value, script_or_title};
use crate::error::AnalysisError;
use crate::moment_labels::labels_of;
use crate::question::{ProfileQuestion, QuestionSource, TypeSelection};
use crate::sample_plan::NamedProfile;
use crate::session::AnalysisSession;

use guard::StepBudget;
pub(crate) use heap::{HEAP_TYPES, columns as heap_columns, spread_of_samples};
use load::NewProfile;
pub(crate) use load::check_differs_from_earlier;
pub(crate) use sample_rows::SampleRows;
pub use schema::SCHEMA_VERSION;
pub(crate) use schema::views;
pub use watch::{
    WatchBatch, WatchEvent, WatchFigures, WatchMoment, WatchProcess, WatchReport, WatchStart,
    WatchSum, WatchedProcess,
};
pub use wiretap::{
    WiretapBatch, WiretapCode, WiretapReport, WiretapRow, WiretapRowKind, WiretapSender,
};

/// Longest time to wait while another process writes to the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// An open database.
pub struct ProfileStore {
    connection: Connection,
    /// The number of steps of SQLite's virtual machine that heapprof's own statements may still
    /// take.
    budget: StepBudget,
}

/// A short description of a stored profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredProfile {
    /// The name of the profile.
    pub name: String,
    /// The time when the values were taken, in nanoseconds since 1970 UTC; 0 if unknown.
    pub time_nanos: i64,
    /// The profile's position among the moments of its process, if the profile names its process.
    pub snapshot: Option<SnapshotPosition>,
    /// The number of distinct pairs of a stack and a label set.
    pub samples: i64,
    /// The type, unit and total of the default sample type.
    pub total: (String, String, i64),
    /// The program that was profiled, if the profile names it.
    pub program: Option<String>,
    /// The script or the title of the process, which distinguishes the process from other processes
    /// of its program.
    pub script_or_title: Option<String>,
}

/// The position of a profile among the moments of its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPosition {
    /// The time when the recording began, in nanoseconds since 1970 UTC.
    pub start_nanos: i64,
    /// The number of this moment, from 1, in the order of time.
    pub number: usize,
    /// The number of moments of this process.
    pub count: usize,
}

/// Returns a path that SQLite can't take for a special name such as `:memory:` or `file:`.
fn plain_path(path: &Path) -> PathBuf {
    match path.is_absolute() {
        true => path.to_path_buf(),
        false => Path::new(".").join(path),
    }
}

/// Opens a database file of unknown origin, with a limit on SQLite's steps.
fn connect(path: &Path, flags: OpenFlags) -> Result<(Connection, StepBudget), AnalysisError> {
    let path = plain_path(path);
    // A file whose size can't be read can't be opened either.
    let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let budget = guard::set_up(&mut connection, bytes)?;
    Ok((connection, budget))
}

/// Returns the approximate number of bytes that a profile takes in a database. The number is more
/// likely too large than too small.
fn estimated_size(profile: &Profile) -> u64 {
    let samples = &profile.samples;
    let frames: usize = (0..samples.len()).map(|i| samples.stack(i).len()).sum();
    let values = samples.len() * (profile.sample_type.len() + 1);
    let others = profile.location.len()
        + profile.line.len()
        + profile.function.len() * (profile.sample_type.len() + 1)
        + profile.mapping.len();
    (frames + values + others) as u64 * 16
}

impl ProfileStore {
    /// Opens an existing database for reading.
    pub fn open(path: &Path) -> Result<Self, AnalysisError> {
        // SQLite does not open the file read-only, because after a killed load the first reader
        // must roll its journal back. A file that can't be written is still opened for reading.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let (connection, budget) = connect(path, flags)?;
        connection.pragma_update(None, "query_only", true)?;
        // A statement that the user wrote must not create files.
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        schema::check_filled(&connection)?;
        Ok(Self { connection, budget })
    }

    /// Opens an existing database for writing. An empty database is refused.
    pub fn open_to_write(path: &Path) -> Result<Self, AnalysisError> {
        Self::open(path)?;
        Self::open_or_create(path)
    }

    /// Opens a database for writing. The database is created if it does not exist, and migrated to
    /// the newest schema.
    pub fn open_or_create(path: &Path) -> Result<Self, AnalysisError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let (mut connection, budget) = connect(path, flags)?;
        guard::set_up_to_write(&connection)?;
        // heapprof writes references correctly, and tests check them. With this setting on, SQLite
        // would check the references of each row again.
        connection.pragma_update(None, "foreign_keys", false)?;
        schema::migrate(&mut connection)?;
        Ok(Self { connection, budget })
    }

    /// Returns all profiles in the order in which they were loaded. The profiles of one process
    /// come together, in the order of their times.
    pub fn profiles(&self) -> Result<Vec<StoredProfile>, AnalysisError> {
        let mut statement = self.connection.prepare(
            "SELECT id, name, time_nanos, default_sample_type, samples FROM profile ORDER BY id",
        )?;
        let rows = statement.query_map([], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get::<_, String>(3)?,
                row.get(4)?,
            ))
        })?;
        let mut profiles = Vec::new();
        let mut processes: Vec<(ProfiledProcess, Vec<usize>)> = Vec::new();
        for row in rows {
            let (id, name, time_nanos, default, samples) = row?;
            let mut totals = self.connection.prepare_cached(
                "SELECT s.type, s.unit, t.net FROM profile_total t \
                 JOIN sample_type s ON s.id = t.type WHERE t.profile = ?1 ORDER BY t.position",
            )?;
            let totals = totals.query_map([id], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?))
            })?;
            let mut totals = totals.collect::<Result<Vec<_>, _>>()?;
            let names: Vec<&str> = totals.iter().map(|t| t.0.as_str()).collect();
            let shown = default_sample_type(&names, &default);
            if shown >= totals.len() {
                return Err(damage::damage_error("the totals of profile", id));
            }
            let total = totals.swap_remove(shown);
            let comments = self.comments(id)?;
            if let Some(process) = self.process(id, &comments)? {
                match processes
                    .iter_mut()
                    .find(|(known, _)| known.is_same_process(&process))
                {
                    Some((_, moments)) => moments.push(profiles.len()),
                    None => processes.push((process, vec![profiles.len()])),
                }
            }
            profiles.push(StoredProfile {
                name,
                time_nanos,
                samples,
                total,
                snapshot: None,
                program: find_single_value(&comments, "program"),
                script_or_title: script_or_title(&comments),
            });
        }
        // Each profile is at its own position, or at the position of the first one of its process.
        let mut places: Vec<(usize, usize)> = (0..profiles.len()).map(|at| (at, 0)).collect();
        for (process, mut moments) in processes {
            let first = moments[0];
            moments.sort_by_key(|&at| profiles[at].time_nanos);
            for (number, &at) in moments.iter().enumerate() {
                places[at] = (first, number);
                profiles[at].snapshot = Some(SnapshotPosition {
                    start_nanos: process.start(),
                    number: number + 1,
                    count: moments.len(),
                });
            }
        }
        let mut placed: Vec<_> = places.into_iter().zip(profiles).collect();
        placed.sort_by_key(|(place, _)| *place);
        Ok(placed.into_iter().map(|(_, profile)| profile).collect())
    }

    fn comments(&self, id: i64) -> Result<Vec<String>, AnalysisError> {
        let mut comments = self
            .connection
            .prepare_cached("SELECT text FROM comment WHERE profile = ?1 ORDER BY position")?;
        let comments = comments.query_map([id], |row| row.get(0))?;
        Ok(comments.collect::<Result<_, _>>()?)
    }

    fn process(
        &self,
        id: i64,
        comments: &[String],
    ) -> Result<Option<ProfiledProcess>, AnalysisError> {
        let mut times = self
            .connection
            .prepare_cached("SELECT time_nanos, duration_nanos FROM profile WHERE id = ?1")?;
        let (time, duration) = times.query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(ProfiledProcess::new(comments, time, duration))
    }

    /// Returns the number of samples of all profiles.
    pub fn samples(&self) -> Result<i64, AnalysisError> {
        let sql = "SELECT ifnull(sum(samples), 0) FROM profile";
        Ok(self.connection.query_row(sql, [], |row| row.get(0))?)
    }

    /// Returns the names of all profiles.
    pub fn names(&self) -> Result<Vec<String>, AnalysisError> {
        let mut statement = self
            .connection
            .prepare("SELECT name FROM profile ORDER BY id")?;
        let names = statement
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        Ok(names)
    }

    /// Returns the number of the profile `name`.
    pub fn find(&self, name: &str) -> Result<i64, AnalysisError> {
        use rusqlite::OptionalExtension;
        let found = self
            .connection
            .query_row("SELECT id FROM profile WHERE name = ?1", [name], |row| {
                row.get(0)
            })
            .optional()?;
        match found {
            Some(id) => Ok(id),
            None => Err(AnalysisError::NoSuchProfile {
                name: name.to_string(),
                present: self.names()?,
            }),
        }
    }

    /// Adds a profile under a name that no stored profile has. Either all of the profile is added
    /// or nothing.
    ///
    /// `progress` is called now and then with the amount of finished work and the total amount of
    /// work.
    pub fn load(
        &mut self,
        name: &str,
        profile: &Arc<Profile>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), AnalysisError> {
        self.load_labelled(name, profile, &labels_of(profile), progress)
    }

    /// Adds a profile as [`load`](Self::load) does, but with these labels instead of the profile's
    /// own labels.
    pub fn load_labelled(
        &mut self,
        name: &str,
        profile: &Arc<Profile>,
        labels: &BTreeMap<String, String>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), AnalysisError> {
        self.renew_budget()?;
        self.budget.allow(estimated_size(profile));
        let new = NewProfile {
            name,
            profile,
            labels,
        };
        load::load(&mut self.connection, &[new], &[], progress)
    }

    /// Whether the stored profile `name` has the same time and the same sums as `profile`.
    ///
    /// # Errors
    /// No profile has the name, or a sum is beyond 64 bits.
    pub fn has_same(&self, name: &str, profile: &Arc<Profile>) -> Result<bool, AnalysisError> {
        let id = self.find(name)?;
        let times: (i64, i64, i64) = self.connection.query_row(
            "SELECT time_nanos, duration_nanos, samples FROM profile WHERE id = ?1",
            [id],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
        let source = QuestionSource::new(name, Arc::clone(profile));
        let question = ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::All)?;
        let whole = question.parts[0].whole.iter();
        let sums: Vec<(i64, i64)> = whole.map(|sum| (sum.total, sum.net)).collect();
        let mut statement = self.connection.prepare_cached(
            "SELECT total, net FROM profile_total WHERE profile = ?1 ORDER BY position",
        )?;
        let stored = statement.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let stored = stored.collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
        let samples = profile.samples.len() as i64;
        Ok(stored == sums && times == (profile.time_nanos, profile.duration_nanos, samples))
    }

    /// Raises the limit on SQLite's steps by the number of steps that is allowed for a file of the
    /// database's size. This is needed between profiles, because each profile may need all tables.
    pub(crate) fn renew_budget(&self) -> Result<(), AnalysisError> {
        let pragma = |name| {
            self.connection
                .pragma_query_value(None, name, |row| row.get(0))
        };
        let (pages, page): (i64, i64) = (pragma("page_count")?, pragma("page_size")?);
        let bytes = pages.unsigned_abs().saturating_mul(page.unsigned_abs());
        self.budget.allow_file(bytes);
        Ok(())
    }

    /// Stores the `new` profiles and removes the `removed` ones. Either all of this is done or
    /// nothing.
    pub fn replace(
        &mut self,
        new: &[NamedProfile],
        removed: &[String],
    ) -> Result<(), AnalysisError> {
        let ids = removed.iter().map(|name| self.find(name));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        self.renew_budget()?;
        for (_, profile, _) in new {
            self.renew_budget()?;
            self.budget.allow(estimated_size(profile));
        }
        let new = new.iter().map(|(name, profile, labels)| NewProfile {
            name,
            profile,
            labels,
        });
        let new: Vec<NewProfile<'_>> = new.collect();
        load::load(&mut self.connection, &new, &ids, &mut |_, _| {})
    }

    /// Restores the profile `name` as it was loaded, except that equal samples are merged.
    pub fn restore(&self, name: &str) -> Result<QuestionSource, AnalysisError> {
        self.renew_budget()?;
        restore::restore(&self.connection, self.find(name)?, name)
    }

    /// Removes all of these profiles, or none.
    pub fn remove(&mut self, names: &[String]) -> Result<(), AnalysisError> {
        self.replace(&[], names)
    }

    /// Frees the space that removed profiles took. Meanwhile, the file needs as much additional
    /// space as the remaining profiles take.
    pub fn compact(&mut self) -> Result<(), AnalysisError> {
        self.connection.execute_batch("VACUUM")?;
        Ok(())
    }

    /// Returns the statements that made the tables and views.
    pub fn schema(&self) -> Result<Vec<String>, AnalysisError> {
        let mut statement = self.connection.prepare(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, rootpage, name",
        )?;
        let all = statement
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        Ok(all)
    }

    /// Makes a session for statements that the user wrote. They may use the views and take as long
    /// as they need.
    pub fn session_for_statements(mut self) -> Result<AnalysisSession, AnalysisError> {
        guard::set_up_for_statements(&mut self.connection)?;
        Ok(AnalysisSession::over_database(self.connection))
    }
}
