//! What `watch` has seen of processes over time: rows that come in, and the report of them.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{ProfileStore, schema};
use crate::error::AnalysisError;

/// About how many bytes a row takes.
const ESTIMATED_ROW_BYTES: u64 = 512;

/// A watch, as it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchStart {
    /// What it is called; a name that is taken gets a number.
    pub name: String,
    /// The name of the machine.
    pub host: String,
    /// What is watched.
    pub command: String,
    /// The time between two looks.
    pub interval_ms: i64,
    /// When it began, in milliseconds since 1970 UTC.
    pub began_ms: i64,
}

/// A process that is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchProcess {
    /// Its number in this watch, from 1. A pid may come again.
    pub process: i64,
    /// Its pid.
    pub pid: i64,
    /// The pid of its parent.
    pub parent: i64,
    /// What the kernel calls it.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// When it was seen first, in milliseconds since 1970 UTC.
    pub began_ms: i64,
    /// When its end was seen.
    pub ended_ms: Option<i64>,
    /// How it ended, if that is known.
    pub ending: String,
}

/// What a process had at a moment, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchMoment {
    /// Its number in this watch.
    pub process: i64,
    /// When, in milliseconds since 1970 UTC. All processes of one look have the same.
    pub time_ms: i64,
    /// Addresses.
    pub size: i64,
    /// What is in memory.
    pub rss: i64,
    /// What of it is of files, or shared memory.
    pub shared: i64,
    /// Addresses of private memory that can be written.
    pub data: i64,
    /// Its proportional part. This and the next three are read less often.
    pub pss: Option<i64>,
    /// What it has alone.
    pub uss: Option<i64>,
    /// What is swapped out.
    pub swap: Option<i64>,
    /// The most that ever was in memory.
    pub peak: Option<i64>,
    /// How many threads it has.
    pub threads: i64,
    /// Pages that came without a disk.
    pub minor_faults: i64,
    /// Pages that came from a disk.
    pub major_faults: i64,
    /// How many microseconds it has worked.
    pub worked_us: i64,
}

/// What a process had when it set a mark, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchFigures {
    /// Addresses.
    pub size: i64,
    /// What is in memory.
    pub rss: i64,
    /// What of it is of files, or shared memory.
    pub shared: i64,
    /// Addresses of code.
    pub code: i64,
    /// Addresses of private memory that can be written, with stacks.
    pub data: i64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchEvent {
    /// The process that it happened to, by its number in this watch.
    pub process: Option<i64>,
    /// When, in milliseconds since 1970 UTC.
    pub time_ms: i64,
    /// `began`, `forked`, `exec`, `ended`, `mark`, `until`, `then` or `unseen`.
    pub kind: String,
    /// More about it.
    pub text: String,
    /// What the process had then, if it was read.
    pub figures: Option<WatchFigures>,
}

/// What came since something was stored last.
#[derive(Clone, Debug, Default)]
pub struct WatchBatch {
    /// Processes that are new or have changed.
    pub processes: Vec<WatchProcess>,
    /// Moments.
    pub moments: Vec<WatchMoment>,
    /// Events, in order.
    pub events: Vec<WatchEvent>,
    /// How many looks there were so far.
    pub sample_count: i64,
    /// How many microseconds watching has taken so far.
    pub cost_us: i64,
    /// When it ended, if it has.
    pub ended_ms: Option<i64>,
}

/// The sum over all processes at a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchSum {
    /// When, in milliseconds since 1970 UTC.
    pub time_ms: i64,
    /// What was in memory.
    pub rss: i64,
    /// How many processes there were.
    pub processes: i64,
}

/// What a process had over the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedProcess {
    /// What it is.
    pub about: WatchProcess,
    /// What was in memory at the first look, at the last one, and at most.
    pub first: i64,
    /// See [`first`](Self::first).
    pub last: i64,
    /// See [`first`](Self::first). The kernel's peak counts, too.
    pub most: i64,
    /// Its proportional part when it was read last.
    pub pss: Option<i64>,
    /// How many microseconds it has worked, as far as it was seen.
    pub worked_us: i64,
    /// How many looks there were at it.
    pub sample_count: i64,
}

/// The report of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// How it began.
    pub start: WatchStart,
    /// When it ended, if it has.
    pub ended_ms: Option<i64>,
    /// How many looks there were.
    pub sample_count: i64,
    /// How many microseconds watching has taken.
    pub cost_us: i64,
    /// The sum of each look.
    pub sums: Vec<WatchSum>,
    /// The processes, the one that had most first.
    pub processes: Vec<WatchedProcess>,
    /// What happened, in order.
    pub events: Vec<WatchEvent>,
}

impl ProfileStore {
    /// Begins a watch. Returns its number and its name.
    ///
    /// # Errors
    /// The database may not be written.
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

    /// Adds what has come, all or nothing.
    ///
    /// # Errors
    /// The database may not be written.
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

    /// Reports a watch by its name; the last one without a name. `None` if there is none.
    ///
    /// # Errors
    /// The database may not be readable.
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

/// The name, with a number if it is taken.
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
    // A clock that is set back may come to the same time again.
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
            // The clock was set back: the first row of a moment stays.
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
        // What the kernel says was the most counts, even if no look saw it.
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
