//! The wiretap in the database: stores rows that a listener collects, and reports them.

use std::collections::{BTreeMap, HashSet};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{ProfileStore, schema};
use crate::error::AnalysisError;

/// Maximum number of rows about code, and maximum number of rows about senders. Datagrams that need
/// further rows are counted and dropped.
const MAX_ROWS: i64 = 1_000_000;

/// Maximum number of sites or codes that a row of the report lists.
const MAX_NAMED_PLACES: usize = 3;

/// Approximate number of bytes that a row takes, with its index.
const ESTIMATED_ROW_BYTES: u64 = 2048;

/// Code that ran: the key of a row, and the numbers that are added to the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WiretapCode {
    /// The kind of row: `alive` or `load`.
    pub kind: String,
    /// The name of the code, or the file of a module.
    pub code: String,
    /// The place that the code was called from; may be empty.
    pub site: String,
    /// The name of the machine.
    pub host: String,
    /// The pid of the process.
    pub pid: i64,
    /// The outcome of loading a module; empty if the code is no module.
    pub outcome: String,
    /// How often the code ran.
    pub count: i64,
    /// The total time that loading the module took, in microseconds.
    pub us: i64,
    /// The first time that the code ran, in milliseconds since 1970 UTC.
    pub first_ms: i64,
    /// The last time that the code ran, in milliseconds since 1970 UTC.
    pub last_ms: i64,
}

/// The current state of a sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WiretapSender {
    /// The random number of the sender, in 16 hex digits.
    pub sender: String,
    /// The name of the sender's machine.
    pub host: String,
    /// The pid of the sender's process.
    pub pid: i64,
    /// The pid of the parent of the sender's process.
    pub parent: i64,
    /// The number of datagrams that were received.
    pub received: i64,
    /// The number of datagrams that are known to be lost.
    pub lost: i64,
    /// The state of the sender: `goes on`, `ended` or `end unknown`.
    pub state: String,
    /// The first time in the sender's datagrams, in milliseconds since 1970 UTC.
    pub first_ms: i64,
    /// The last time in the sender's datagrams, in milliseconds since 1970 UTC.
    pub last_ms: i64,
}

/// The rows that a listener has collected and that are not stored yet.
#[derive(Clone, Debug, Default)]
pub struct WiretapBatch {
    /// The code that ran.
    pub codes: Vec<WiretapCode>,
    /// The senders whose state has changed.
    pub senders: Vec<WiretapSender>,
    /// The number of datagrams that were refused, by the reason.
    pub refused: Vec<(String, i64)>,
}

/// The grouping of the report's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WiretapRowKind {
    /// A row for each code.
    #[default]
    Code,
    /// A row for each machine.
    Host,
    /// A row for each process.
    Pid,
}

/// A row of the wiretap's report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WiretapRow {
    /// The name of the code, of the machine, or of the machine and the process.
    pub name: String,
    /// The kind of row: `alive` or `load`.
    pub kind: String,
    /// The outcome of loading a module; empty if the code is no module.
    pub outcome: String,
    /// How often the code ran.
    pub count: i64,
    /// The number of processes.
    pub processes: i64,
    /// The number of machines.
    pub hosts: i64,
    /// The first time that the code ran, in milliseconds since 1970 UTC.
    pub first_ms: i64,
    /// The last time that the code ran, in milliseconds since 1970 UTC.
    pub last_ms: i64,
    /// The first few sites of a code, or the first few codes of a machine or process.
    pub places: Vec<String>,
    /// The number of further sites or codes.
    pub more: usize,
}

/// The report `wiretap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WiretapReport {
    /// The rows about code that ran.
    pub rows: Vec<WiretapRow>,
    /// The expected names that were never seen, in the order in which they were given.
    pub unseen: Vec<String>,
    /// The number of different names that were expected, if any were.
    pub expected: Option<usize>,
    /// The number of senders in each state.
    pub senders: BTreeMap<String, i64>,
    /// The number of datagrams that were received.
    pub received: i64,
    /// The number of datagrams that are known to be lost.
    pub lost: i64,
    /// The number of datagrams that were refused, by the reason.
    pub refused: Vec<(String, i64)>,
}

impl ProfileStore {
    /// Adds the rows that a listener has collected. Either all of them are added or none. Returns
    /// the number of datagrams about code that were dropped, because the table was full.
    pub fn add_wiretap(&mut self, batch: &WiretapBatch) -> Result<i64, AnalysisError> {
        let rows = batch.codes.len() + batch.senders.len() + batch.refused.len() + 1;
        self.budget.allow(rows as u64 * ESTIMATED_ROW_BYTES);
        add(&mut self.connection, batch, MAX_ROWS)
    }

    /// Returns the senders with the newest datagrams, at most `most` senders.
    pub fn wiretap_senders(&self, most: usize) -> Result<Vec<WiretapSender>, AnalysisError> {
        if !schema::has_wiretap(&self.connection)? {
            return Ok(Vec::new());
        }
        let mut statement = self.connection.prepare(
            "SELECT sender, host, pid, parent, received, lost, state, first_ms, last_ms \
             FROM wiretap_sender ORDER BY last_ms DESC, sender LIMIT ?1",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = statement.query_map([most], |row| {
            Ok(WiretapSender {
                sender: row.get(0)?,
                host: row.get(1)?,
                pid: row.get(2)?,
                parent: row.get(3)?,
                received: row.get(4)?,
                lost: row.get(5)?,
                state: row.get(6)?,
                first_ms: row.get(7)?,
                last_ms: row.get(8)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Reports the code that was seen at `since_ms` or later, and which of the `expected` names
    /// were not seen.
    pub fn wiretap(
        &self,
        by: WiretapRowKind,
        since_ms: i64,
        expected: Option<&[String]>,
    ) -> Result<WiretapReport, AnalysisError> {
        let mut report = WiretapReport::default();
        let is_there = schema::has_wiretap(&self.connection)?;
        if is_there {
            report.rows = rows(&self.connection, by, since_ms)?;
            sums(&self.connection, &mut report)?;
        }
        if let Some(expected) = expected {
            let seen = match is_there {
                true => seen_names(&self.connection, since_ms)?,
                false => HashSet::new(),
            };
            let mut known = HashSet::new();
            let names = expected.iter().filter(|name| known.insert(name.as_str()));
            let names: Vec<&String> = names.collect();
            report.expected = Some(names.len());
            let unseen = names.into_iter().filter(|name| !seen.contains(*name));
            report.unseen = unseen.cloned().collect();
        }
        Ok(report)
    }
}

fn count(connection: &Connection, sql: &str) -> Result<i64, AnalysisError> {
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}

fn add(connection: &mut Connection, batch: &WiretapBatch, most: i64) -> Result<i64, AnalysisError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let dropped = add_codes(&transaction, &batch.codes, most)?;
    let lost_senders = add_senders(&transaction, &batch.senders, most)?;
    let refused = batch.refused.iter();
    let refused = refused.map(|(why, count)| (why.as_str(), *count));
    let no_room = [
        ("no room for the code", dropped),
        ("no room for the sender", lost_senders),
    ];
    for (why, count) in refused.chain(no_room).filter(|(_, count)| *count > 0) {
        transaction.execute(
            "INSERT INTO wiretap_refused VALUES (?1, ?2) \
             ON CONFLICT (why) DO UPDATE SET count = count + ?2",
            params![why, count],
        )?;
    }
    transaction.commit()?;
    Ok(dropped)
}

/// Adds rows of code. Returns the number of datagrams that were dropped, because the table was
/// full.
fn add_codes(
    transaction: &Transaction<'_>,
    codes: &[WiretapCode],
    most: i64,
) -> Result<i64, AnalysisError> {
    // Rows are never removed, so the largest row number is the number of rows.
    let mut rows = count(
        transaction,
        "SELECT ifnull(max(rowid), 0) FROM wiretap_code",
    )?;
    let mut dropped = 0;
    let mut update = transaction.prepare_cached(
        "UPDATE wiretap_code SET count = count + ?7, us = us + ?8, \
         first_ms = min(first_ms, ?9), last_ms = max(last_ms, ?10) \
         WHERE kind = ?1 AND code = ?2 AND site = ?3 AND host = ?4 AND pid = ?5 AND outcome = ?6",
    )?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO wiretap_code VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for c in codes {
        let values = params![
            c.kind, c.code, c.site, c.host, c.pid, c.outcome, c.count, c.us, c.first_ms, c.last_ms
        ];
        if update.execute(values)? > 0 {
            continue;
        }
        if rows >= most {
            dropped += c.count;
            continue;
        }
        insert.execute(values)?;
        rows += 1;
    }
    Ok(dropped)
}

/// Writes the current state of senders. Returns the number of senders that were dropped, because
/// the table was full.
fn add_senders(
    transaction: &Transaction<'_>,
    senders: &[WiretapSender],
    most: i64,
) -> Result<i64, AnalysisError> {
    let mut rows = count(
        transaction,
        "SELECT ifnull(max(rowid), 0) FROM wiretap_sender",
    )?;
    let mut dropped = 0;
    let mut update = transaction.prepare_cached(
        "UPDATE wiretap_sender SET host = ?2, pid = ?3, parent = ?4, received = ?5, lost = ?6, \
         state = ?7, first_ms = ?8, last_ms = ?9 WHERE sender = ?1",
    )?;
    let mut insert = transaction
        .prepare_cached("INSERT INTO wiretap_sender VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
    for s in senders {
        let values = params![
            s.sender, s.host, s.pid, s.parent, s.received, s.lost, s.state, s.first_ms, s.last_ms
        ];
        if update.execute(values)? > 0 {
            continue;
        }
        if rows >= most {
            dropped += 1;
            continue;
        }
        insert.execute(values)?;
        rows += 1;
    }
    Ok(dropped)
}

/// Returns the two statements of a report: for its rows, and for the places that belong to each
/// row.
fn statements(by: WiretapRowKind) -> [&'static str; 2] {
    match by {
        WiretapRowKind::Code => [
            "SELECT code, kind, outcome, sum(count), count(DISTINCT host || ' ' || pid), \
             count(DISTINCT host), min(first_ms), max(last_ms) FROM wiretap_code \
             WHERE last_ms >= ?1 GROUP BY code, kind, outcome \
             ORDER BY sum(count) DESC, code, kind, outcome",
            "SELECT DISTINCT code, kind, outcome, site FROM wiretap_code \
             WHERE last_ms >= ?1 AND site <> '' ORDER BY site",
        ],
        WiretapRowKind::Host => [
            "SELECT host, kind, outcome, sum(count), count(DISTINCT host || ' ' || pid), \
             count(DISTINCT host), min(first_ms), max(last_ms) FROM wiretap_code \
             WHERE last_ms >= ?1 GROUP BY host, kind, outcome \
             ORDER BY sum(count) DESC, host, kind, outcome",
            "SELECT DISTINCT host, kind, outcome, code FROM wiretap_code \
             WHERE last_ms >= ?1 ORDER BY code",
        ],
        WiretapRowKind::Pid => [
            "SELECT host || ' ' || pid, kind, outcome, sum(count), \
             count(DISTINCT host || ' ' || pid), count(DISTINCT host), min(first_ms), \
             max(last_ms) FROM wiretap_code WHERE last_ms >= ?1 \
             GROUP BY host, pid, kind, outcome \
             ORDER BY sum(count) DESC, host, pid, kind, outcome",
            "SELECT DISTINCT host || ' ' || pid, kind, outcome, code FROM wiretap_code \
             WHERE last_ms >= ?1 ORDER BY code",
        ],
    }
}

fn rows(
    connection: &Connection,
    by: WiretapRowKind,
    since_ms: i64,
) -> Result<Vec<WiretapRow>, AnalysisError> {
    let [of_rows, of_places] = statements(by);
    let mut places: BTreeMap<(String, String, String), (Vec<String>, usize)> = BTreeMap::new();
    let mut statement = connection.prepare(of_places)?;
    let mut found = statement.query([since_ms])?;
    while let Some(row) = found.next()? {
        let key = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (named, more) = places.entry(key).or_default();
        match named.len() < MAX_NAMED_PLACES {
            true => named.push(row.get(3)?),
            false => *more += 1,
        }
    }
    let mut statement = connection.prepare(of_rows)?;
    let rows = statement.query_map([since_ms], |row| {
        let key = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (named, more) = places.remove(&key).unwrap_or_default();
        Ok(WiretapRow {
            name: key.0,
            kind: key.1,
            outcome: key.2,
            count: row.get(3)?,
            processes: row.get(4)?,
            hosts: row.get(5)?,
            first_ms: row.get(6)?,
            last_ms: row.get(7)?,
            places: named,
            more,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn sums(connection: &Connection, report: &mut WiretapReport) -> Result<(), AnalysisError> {
    let mut statement = connection.prepare(
        "SELECT state, count(*), sum(received), sum(lost) FROM wiretap_sender GROUP BY state",
    )?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        report.senders.insert(row.get(0)?, row.get(1)?);
        report.received = report.received.saturating_add(row.get(2)?);
        report.lost = report.lost.saturating_add(row.get(3)?);
    }
    let mut statement =
        connection.prepare("SELECT why, count FROM wiretap_refused ORDER BY count DESC, why")?;
    let refused = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    report.refused = refused.collect::<Result<_, _>>()?;
    Ok(())
}

fn seen_names(connection: &Connection, since_ms: i64) -> Result<HashSet<String>, AnalysisError> {
    // A module that was searched for and not found did not run.
    let mut statement = connection.prepare(
        "SELECT DISTINCT code FROM wiretap_code WHERE last_ms >= ?1 AND outcome <> 'missing'",
    )?;
    let names = statement.query_map([since_ms], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(code: &str, site: &str, pid: i64, count: i64, ms: i64) -> WiretapCode {
        WiretapCode {
            kind: "alive".to_string(),
            code: code.to_string(),
            site: site.to_string(),
            host: "web1".to_string(),
            pid,
            count,
            first_ms: ms,
            last_ms: ms,
            ..WiretapCode::default()
        }
    }

    fn sender(sender: &str, lost: i64, state: &str) -> WiretapSender {
        WiretapSender {
            sender: sender.to_string(),
            received: 10,
            lost,
            state: state.to_string(),
            ..WiretapSender::default()
        }
    }

    #[test]
    fn what_was_collected_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.db");
        let mut store = ProfileStore::open_or_create(&path).unwrap();
        for ms in [1000, 2000] {
            let batch = WiretapBatch {
                codes: vec![code("a", "a.c:1", 1, 2, ms), code("a", "a.c:2", 2, 1, ms)],
                senders: vec![
                    sender("1", ms / 1000, "ended"),
                    sender("2", 0, "end unknown"),
                ],
                refused: vec![
                    ("not understood".to_string(), 5),
                    ("duplicate".to_string(), 0),
                ],
            };
            assert_eq!(store.add_wiretap(&batch).unwrap(), 0);
        }
        let store = ProfileStore::open(&path).unwrap();
        let expected = ["b", "a", "b"].map(str::to_string);
        let report = store
            .wiretap(WiretapRowKind::Code, 0, Some(&expected))
            .unwrap();
        let row = &report.rows[0];
        assert_eq!((report.rows.len(), row.name.as_str()), (1, "a"));
        assert_eq!((row.count, row.processes, row.hosts), (6, 2, 1));
        assert_eq!((row.first_ms, row.last_ms), (1000, 2000));
        assert_eq!(row.places, ["a.c:1", "a.c:2"]);
        assert_eq!(
            (report.unseen, report.expected),
            (vec!["b".to_string()], Some(2))
        );
        // A sender's row has only its current state.
        assert_eq!((report.received, report.lost), (20, 2));
        assert_eq!(report.senders["end unknown"], 1);
        assert_eq!(report.refused, [("not understood".to_string(), 10)]);
        let later = store.wiretap(WiretapRowKind::Code, 2001, Some(&expected));
        let later = later.unwrap();
        assert_eq!((later.rows.len(), later.unseen.len()), (0, 2));
        let by_pid = store.wiretap(WiretapRowKind::Pid, 0, None).unwrap().rows;
        assert_eq!((by_pid.len(), by_pid[0].name.as_str()), (2, "web1 1"));
        assert_eq!(by_pid[0].places, ["a"]);
        assert_eq!(
            store
                .wiretap(WiretapRowKind::Host, 0, None)
                .unwrap()
                .rows
                .len(),
            1
        );
        assert_eq!(store.wiretap_senders(1).unwrap().len(), 1);
    }

    #[test]
    fn rows_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = ProfileStore::open_or_create(&folder.path().join("w.db")).unwrap();
        let codes = (0..10).map(|pid| code("a", "", pid, 3, 1)).collect();
        let batch = WiretapBatch {
            codes,
            ..WiretapBatch::default()
        };
        assert_eq!(add(&mut store.connection, &batch, 4).unwrap(), 18);
        // Code that already has a row is still counted.
        assert_eq!(add(&mut store.connection, &batch, 4).unwrap(), 18);
        let report = store.wiretap(WiretapRowKind::Code, 0, None).unwrap();
        assert_eq!((report.rows[0].count, report.rows[0].processes), (24, 4));
        assert_eq!(report.refused, [("no room for the code".to_string(), 36)]);
    }
}
