//! The watches in the database: stores rows about processes over time, and reports them.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{ProfileStore, schema};
use crate::error::AnalysisError;

/// Approximate number of bytes that a row takes.
const ESTIMATED_ROW_BYTES: u64 = 512;

/// The facts about a watch that are known when it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchStart {
    /// The name of the watch. A number is added if another watch has the name.
    pub name: String,
    /// The name of the machine.
    pub host: String,
    /// The script or title of the watched program, or its name if it has neither.
    pub command: String,
    /// The time between two readings, in milliseconds.
    pub interval_ms: i64,
    /// The time when the watch began, in milliseconds since 1970 UTC.
    pub began_ms: i64,
}

/// A process that is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchProcess {
    /// The number of the process in this watch, from 1. Unlike a pid, a number is not used again.
    pub process: i64,
    /// The pid of the process.
    pub pid: i64,
    /// The pid of the process's parent.
    pub parent: i64,
    /// The name that the kernel has for the process.
    pub name: String,
    /// The script that the process runs, or the title that it has set; empty if there is neither.
    pub command: String,
    /// The time when the process was seen first, in milliseconds since 1970 UTC.
    pub began_ms: i64,
    /// The time when the end of the process was seen, in milliseconds since 1970 UTC.
    pub ended_ms: Option<i64>,
    /// How the process ended, if that is known.
    pub ending: String,
}

/// The memory and work of a process at one reading. Sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchMoment {
    /// The number of the process in this watch.
    pub process: i64,
    /// The time of the reading, in milliseconds since 1970 UTC. All processes of one reading have
    /// the same time.
    pub time_ms: i64,
    /// The size of all mappings.
    pub size: i64,
    /// The resident memory.
    pub rss: i64,
    /// The part of the resident memory that belongs to files or shared memory.
    pub shared: i64,
    /// The size of the private mappings that can be written.
    pub data: i64,
    /// The proportional set size. This field and the next three are read less often than the
    /// others.
    pub pss: Option<i64>,
    /// The unique set size: the memory that no other process shares.
    pub uss: Option<i64>,
    /// The memory that is swapped out.
    pub swap: Option<i64>,
    /// The highest resident memory so far.
    pub peak: Option<i64>,
    /// The number of threads.
    pub threads: i64,
    /// The number of page faults that needed no disk.
    pub minor_faults: i64,
    /// The number of page faults that needed a disk.
    pub major_faults: i64,
    /// The processor time that the process has used, in microseconds.
    pub worked_us: i64,
}

/// The memory of a process at an event, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchFigures {
    /// The size of all mappings.
    pub size: i64,
    /// The resident memory.
    pub rss: i64,
    /// The part of the resident memory that belongs to files or shared memory.
    pub shared: i64,
    /// The size of the mapped code.
    pub code: i64,
    /// The size of the private mappings that can be written, with stacks.
    pub data: i64,
}

/// An event during a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchEvent {
    /// The process of the event, by its number in this watch.
    pub process: Option<i64>,
    /// The time of the event, in milliseconds since 1970 UTC.
    pub time_ms: i64,
    /// The kind of event: `began`, `forked`, `exec`, `ended`, `mark`, `until`, `then` or `unseen`.
    pub kind: String,
    /// Further information about the event.
    pub text: String,
    /// The memory of the process at the event, if it was read.
    pub figures: Option<WatchFigures>,
}

/// The rows of a watch that are not stored yet.
#[derive(Clone, Debug, Default)]
pub struct WatchBatch {
    /// The processes that are new or have changed.
    pub processes: Vec<WatchProcess>,
    /// The new readings of processes.
    pub moments: Vec<WatchMoment>,
    /// The new events, in order.
    pub events: Vec<WatchEvent>,
    /// The number of readings so far.
    pub sample_count: i64,
    /// The time that watching has taken so far, in microseconds.
    pub cost_us: i64,
    /// The time when the watch ended, in milliseconds since 1970 UTC, if it has ended.
    pub ended_ms: Option<i64>,
}

/// The sums over all processes that were read at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchSum {
    /// The time of the reading, in milliseconds since 1970 UTC.
    pub time_ms: i64,
    /// The resident memory of all processes, in bytes.
    pub rss: i64,
    /// The number of processes.
    pub processes: i64,
}

/// A watched process, with its memory and its processor time during the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedProcess {
    /// The process itself.
    pub about: WatchProcess,
    /// The resident memory at the first reading, in bytes.
    pub first: i64,
    /// The resident memory at the last reading, in bytes.
    pub last: i64,
    /// The highest resident memory, in bytes. The kernel's own peak counts, too.
    pub most: i64,
    /// The proportional set size when it was read last, in bytes.
    pub pss: Option<i64>,
    /// The processor time that the process used while it was watched, in microseconds.
    pub worked_us: i64,
    /// The number of readings of the process.
    pub sample_count: i64,
}

/// The report `watch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// The facts about the watch that were known when it began.
    pub start: WatchStart,
    /// The time when the watch ended, in milliseconds since 1970 UTC, if it has ended.
    pub ended_ms: Option<i64>,
    /// The number of readings.
    pub sample_count: i64,
    /// The time that watching has taken, in microseconds.
    pub cost_us: i64,
    /// The sum of each reading.
    pub sums: Vec<WatchSum>,
    /// The processes, the one with the highest memory first.
    pub processes: Vec<WatchedProcess>,
    /// The events, in order.
    pub events: Vec<WatchEvent>,
}

impl ProfileStore {
    /// Begins a watch. Returns its number and its name.
    ///
    /// # Errors
    /// The database can't be written.
    pub fn begin_watch(&mut self, start: &WatchStart) -> Result<(i64, String), AnalysisError> {
        self.budget.allow(ESTIMATED_ROW_BYTES);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let name = free_name(&transaction, &start.name)?;
        transaction.execute(
            "INSERT INTO watch (name, host, command, interval_ms, began_ms, looks, cost_us) \
             VALUES (?1, ?2, ?3, ?4, ?5, 0, 0)",
            params![
                name,
                start.host,
                start.command,
                start.interval_ms,
                start.began_ms
            ],
        )?;
        let id = transaction.last_insert_rowid();
        transaction.commit()?;
        Ok((id, name))
    }

    /// Adds rows to a watch. Either all of them are added or none.
    ///
    /// # Errors
    /// The database can't be written.
    pub fn add_to_watch(&mut self, watch: i64, batch: &WatchBatch) -> Result<(), AnalysisError> {
        let rows = batch.processes.len() + batch.moments.len() + batch.events.len() + 1;
        self.budget.allow(rows as u64 * ESTIMATED_ROW_BYTES);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        add(&transaction, watch, batch)?;
        transaction.commit()?;
        Ok(())
    }

    /// Reports the watch with this name, or the newest watch if `name` is `None`. Returns `None` if
    /// there is no such watch.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn watch(&self, name: Option<&str>) -> Result<Option<WatchReport>, AnalysisError> {
        if !schema::has_watch(&self.connection)? {
            return Ok(None);
        }
        let found = self.connection.query_row(
            "SELECT id, name, host, command, interval_ms, began_ms, ended_ms, looks, cost_us \
             FROM watch WHERE name = ?1 OR ?1 IS NULL ORDER BY id DESC LIMIT 1",
            [name],
            |row| {
                let watch = WatchReport {
                    start: WatchStart {
                        name: row.get(1)?,
                        host: row.get(2)?,
                        command: row.get(3)?,
                        interval_ms: row.get(4)?,
                        began_ms: row.get(5)?,
                    },
                    ended_ms: row.get(6)?,
                    sample_count: row.get(7)?,
                    cost_us: row.get(8)?,
                    ..WatchReport::default()
                };
                Ok((row.get::<_, i64>(0)?, watch))
            },
        );
        let Some((id, mut watch)) = found.optional()? else {
            return Ok(None);
        };
        watch.sums = sums(&self.connection, id)?;
        watch.processes = processes(&self.connection, id)?;
        watch.events = events(&self.connection, id)?;
        Ok(Some(watch))
    }
}

/// Returns the wanted name, with a number added if the name is taken.
fn free_name(transaction: &Transaction<'_>, wanted: &str) -> Result<String, AnalysisError> {
    let mut taken = transaction.prepare("SELECT 1 FROM watch WHERE name = ?1")?;
    let mut name = wanted.to_string();
    let mut number = 1;
    while taken.exists([&name])? {
        number += 1;
        name = format!("{wanted}.{number}");
    }
    Ok(name)
}

fn add(transaction: &Transaction<'_>, watch: i64, batch: &WatchBatch) -> Result<(), AnalysisError> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO watch_process VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
         ON CONFLICT (watch, process) DO UPDATE SET parent = excluded.parent, \
         name = excluded.name, command = excluded.command, ended_ms = excluded.ended_ms, \
         ending = excluded.ending",
    )?;
    for p in &batch.processes {
        insert.execute(params![
            watch, p.process, p.pid, p.parent, p.name, p.command, p.began_ms, p.ended_ms, p.ending
        ])?;
    }
    // A clock that is set back may reach the same time again, so a second row for a time is
    // ignored.
    let mut insert = transaction.prepare_cached(
        "INSERT OR IGNORE INTO watch_moment VALUES \
         (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?;
    for m in &batch.moments {
        insert.execute(params![
            watch,
            m.process,
            m.time_ms,
            m.size,
            m.rss,
            m.shared,
            m.data,
            m.pss,
            m.uss,
            m.swap,
            m.peak,
            m.threads,
            m.minor_faults,
            m.major_faults,
            m.worked_us
        ])?;
    }
    let mut insert = transaction.prepare_cached(
        "INSERT INTO watch_event SELECT ?1, (SELECT ifnull(max(number), 0) + 1 FROM watch_event \
         WHERE watch = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10",
    )?;
    for e in &batch.events {
        let f = e.figures.as_ref();
        insert.execute(params![
            watch,
            e.process,
            e.time_ms,
            e.kind,
            e.text,
            f.map(|f| f.size),
            f.map(|f| f.rss),
            f.map(|f| f.shared),
            f.map(|f| f.code),
            f.map(|f| f.data)
        ])?;
    }
    transaction.execute(
        "UPDATE watch SET looks = ?2, cost_us = ?3, ended_ms = ?4 WHERE id = ?1",
        params![watch, batch.sample_count, batch.cost_us, batch.ended_ms],
    )?;
    Ok(())
}

fn sums(connection: &Connection, watch: i64) -> Result<Vec<WatchSum>, AnalysisError> {
    let mut statement = connection.prepare(
        "SELECT time_ms, sum(rss), count(*) FROM watch_moment WHERE watch = ?1 \
         GROUP BY time_ms ORDER BY time_ms",
    )?;
    let rows = statement.query_map([watch], |row| {
        Ok(WatchSum {
            time_ms: row.get(0)?,
            rss: row.get(1)?,
            processes: row.get(2)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn processes(connection: &Connection, watch: i64) -> Result<Vec<WatchedProcess>, AnalysisError> {
    let mut all: BTreeMap<i64, WatchedProcess> = BTreeMap::new();
    let mut statement = connection.prepare(
        "SELECT process, pid, parent, name, command, began_ms, ended_ms, ending \
         FROM watch_process WHERE watch = ?1",
    )?;
    let mut rows = statement.query([watch])?;
    while let Some(row) = rows.next()? {
        let about = WatchProcess {
            process: row.get(0)?,
            pid: row.get(1)?,
            parent: row.get(2)?,
            name: row.get(3)?,
            command: row.get(4)?,
            began_ms: row.get(5)?,
            ended_ms: row.get(6)?,
            ending: row.get(7)?,
        };
        let process = about.process;
        all.entry(process).or_default().about = about;
    }
    let mut statement = connection.prepare(
        "SELECT process, rss, pss, peak, worked_us FROM watch_moment WHERE watch = ?1 \
         ORDER BY process, time_ms",
    )?;
    let mut rows = statement.query([watch])?;
    while let Some(row) = rows.next()? {
        let Some(process) = all.get_mut(&row.get(0)?) else {
            continue;
        };
        let rss: i64 = row.get(1)?;
        if process.sample_count == 0 {
            process.first = rss;
        }
        process.sample_count += 1;
        process.last = rss;
        process.pss = row.get::<_, Option<i64>>(2)?.or(process.pss);
        let peak = row.get::<_, Option<i64>>(3)?.unwrap_or(0);
        process.most = process.most.max(rss).max(peak);
        process.worked_us = row.get(4)?;
    }
    let mut all: Vec<WatchedProcess> = all.into_values().collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.most), one.about.process));
    Ok(all)
}

fn events(connection: &Connection, watch: i64) -> Result<Vec<WatchEvent>, AnalysisError> {
    let mut statement = connection.prepare(
        "SELECT process, time_ms, kind, text, size, rss, shared, code, data FROM watch_event \
         WHERE watch = ?1 ORDER BY number",
    )?;
    let rows = statement.query_map([watch], |row| {
        let figure = |column| row.get::<_, Option<i64>>(column);
        let all = [figure(4)?, figure(5)?, figure(6)?, figure(7)?, figure(8)?];
        let figures = match all {
            [Some(size), Some(rss), Some(shared), Some(code), Some(data)] => Some(WatchFigures {
                size,
                rss,
                shared,
                code,
                data,
            }),
            _ => None,
        };
        Ok(WatchEvent {
            process: row.get(0)?,
            time_ms: row.get(1)?,
            kind: row.get(2)?,
            text: row.get(3)?,
            figures,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(process: i64, time_ms: i64, rss: i64, pss: Option<i64>) -> WatchMoment {
        WatchMoment {
            process,
            time_ms,
            rss,
            pss,
            peak: pss.map(|pss| pss * 10),
            ..WatchMoment::default()
        }
    }

    #[test]
    fn what_was_seen_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.db");
        let mut store = ProfileStore::open_or_create(&path).unwrap();
        let start = WatchStart {
            name: "app".to_string(),
            began_ms: 5,
            interval_ms: 1000,
            ..WatchStart::default()
        };
        let (id, name) = store.begin_watch(&start).unwrap();
        assert_eq!((id, name.as_str()), (1, "app"));
        assert_eq!(store.begin_watch(&start).unwrap().1, "app.2");
        let process = |process, ending: &str| WatchProcess {
            process,
            pid: 100 + process,
            ending: ending.to_string(),
            ..WatchProcess::default()
        };
        let mark = WatchEvent {
            process: Some(1),
            time_ms: 7,
            kind: "mark".to_string(),
            text: "warm".to_string(),
            figures: Some(WatchFigures {
                size: 1,
                rss: 2,
                shared: 3,
                code: 4,
                data: 5,
            }),
        };
        let first = WatchBatch {
            processes: vec![process(1, ""), process(2, "")],
            moments: vec![moment(1, 5, 10, Some(4)), moment(2, 5, 30, None)],
            events: vec![mark.clone()],
            sample_count: 1,
            ..WatchBatch::default()
        };
        let second = WatchBatch {
            processes: vec![process(2, "exit code 3")],
            // The clock was set back: the first row for a time stays.
            moments: vec![moment(1, 9, 25, None), moment(2, 5, 99, None)],
            events: vec![WatchEvent::default()],
            sample_count: 2,
            cost_us: 70,
            ended_ms: Some(9),
        };
        store.add_to_watch(id, &first).unwrap();
        store.add_to_watch(id, &second).unwrap();
        drop(store);
        let store = ProfileStore::open(&path).unwrap();
        let watch = store.watch(Some("app")).unwrap().unwrap();
        assert_eq!(watch.start, start);
        assert_eq!(
            (watch.sample_count, watch.cost_us, watch.ended_ms),
            (2, 70, Some(9))
        );
        let sums: Vec<_> = watch
            .sums
            .iter()
            .map(|s| (s.time_ms, s.rss, s.processes))
            .collect();
        assert_eq!(sums, [(5, 40, 2), (9, 25, 1)]);
        let rows: Vec<_> = watch
            .processes
            .iter()
            .map(|p| {
                (
                    p.about.process,
                    p.first,
                    p.last,
                    p.most,
                    p.pss,
                    p.about.ending.as_str(),
                )
            })
            .collect();
        // The kernel's own peak counts, even if no reading was as high.
        assert_eq!(
            rows,
            [
                (1, 10, 25, 40, Some(4), ""),
                (2, 30, 30, 30, None, "exit code 3"),
            ]
        );
        assert_eq!(watch.events, [mark, WatchEvent::default()]);
        assert_eq!(store.watch(None).unwrap().unwrap().start.name, "app.2");
        assert_eq!(store.watch(Some("nothing")).unwrap(), None);
    }
}
