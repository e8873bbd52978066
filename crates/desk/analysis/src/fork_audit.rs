//! `fork-audit`: how much forked children share, what they load too late, and whose memory they
//! copy.

use std::collections::HashMap;

use heapprof_totals::query::Granularity;
use rusqlite::Row;

use crate::error::AnalysisError;
use crate::place::{self, CodePlace};
use crate::session::AnalysisSession;

/// A child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkChild {
    /// Its process id, and its parent's.
    pub pid: i64,
    /// See [`pid`](Self::pid).
    pub parent: i64,
    /// How many forks lie between the first process and it.
    pub generation: i64,
    /// The file name of its program.
    pub program: String,
    /// Its command line at the last look.
    pub title: String,
    /// When it was forked, in microseconds since 1970.
    pub time_micros: i64,
    /// How old it was at the last look, and when it ended, in microseconds.
    pub audited_micros: i64,
    /// See [`audited_micros`](Self::audited_micros).
    pub age_micros: i64,
    /// How it ended: `ended`, `exec`, `killed` or `running`.
    pub ending: String,
    /// Bytes, by the names of `fork_child`'s columns.
    pub bytes: Vec<(&'static str, i64)>,
    /// Mean bytes between samples of its allocations; 1 if all are known.
    pub period: i64,
    /// Why something is not known, or empty.
    pub unavailable_reason: String,
}

impl ForkChild {
    /// The bytes of this name.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> i64 {
        let found = self.bytes.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, bytes)| *bytes)
    }
}

/// Something that children loaded, or tried to load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkLoad {
    /// What was asked for.
    pub name: String,
    /// How: `require`, `do`, `string eval`, `XS` or `dlopen`.
    pub kind: String,
    /// How it went: `loaded`, `failed` or `not found`.
    pub outcome: String,
    /// How many children did so, and how often together.
    pub children: i64,
    /// See [`children`](Self::children).
    pub attempts: i64,
    /// Bytes of the child that has most of it, with what it loaded in turn.
    pub each: i64,
    /// Bytes of all children: without, and with what it loaded in turn.
    pub flat: i64,
    /// See [`flat`](Self::flat).
    pub cum: i64,
    /// How long it took together, in microseconds, if that was noted.
    pub micros: Option<i64>,
    /// System calls of the searches together: that ask about a path, and that open a file.
    pub stats: i64,
    /// See [`stats`](Self::stats).
    pub opens: i64,
    /// The place that asked for it first, and the callers of that.
    pub site: String,
}

/// A place whose allocations children no longer share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkUnsharedPlace {
    /// What lies there.
    pub kind: String,
    /// The place that allocated it.
    pub place: CodePlace,
    /// In how many children.
    pub children: i64,
    /// Bytes of the child that has most of it, and of all together.
    pub each: i64,
    /// See [`each`](Self::each).
    pub bytes: i64,
    /// Allocations that lie there, of all children.
    pub objects: i64,
}

/// The report.
#[derive(Clone, Debug, Default)]
pub struct ForkAudit {
    /// The children, in the order of their forks.
    pub children: Vec<ForkChild>,
    /// What was loaded, by the bytes of all children.
    pub loads: Vec<ForkLoad>,
    /// What was looked for and is not there, by the calls that it took.
    pub missing: Vec<ForkLoad>,
    /// What lies on pages that are not shared any more, by the bytes of all children: at most as
    /// many rows as were asked for.
    pub unshared: Vec<ForkUnsharedPlace>,
    /// How many bytes the other rows have, and how many rows those are.
    pub unshared_other: [i64; 2],
    /// The same by kind, of all children.
    pub kinds: Vec<(String, i64)>,
    /// Whether somebody noted attempts to load. Otherwise only what was allocated is known.
    pub has_attempts: bool,
}

/// The columns of `fork_child` that are bytes.
const BYTE_COLUMNS: [&str; 14] = [
    "rss",
    "pss",
    "private_dirty",
    "private_clean",
    "shared_dirty",
    "shared_clean",
    "swap",
    "huge",
    "new_space",
    "shared_space",
    "unshared_space",
    "own_space",
    "own_private_space",
    "inherited_space",
];

/// Reports the session's children, with at most so many rows of places.
pub fn fork_audit(
    session: &AnalysisSession,
    limit: Option<usize>,
) -> Result<ForkAudit, AnalysisError> {
    let children = session.rows(
        &format!(
            "SELECT pid, parent, generation, program, title, time_micros, looked_micros, \
             age_micros, ending, lacks, period, {} FROM fork_child ORDER BY time_micros, pid",
            BYTE_COLUMNS.join(", ")
        ),
        [],
        |row| {
            let bytes = BYTE_COLUMNS.iter().enumerate();
            let bytes = bytes.map(|(i, &name)| Ok((name, row.get(11 + i)?)));
            Ok(ForkChild {
                pid: row.get(0)?,
                parent: row.get(1)?,
                generation: row.get(2)?,
                program: row.get(3)?,
                title: row.get(4)?,
                time_micros: row.get(5)?,
                audited_micros: row.get(6)?,
                age_micros: row.get(7)?,
                ending: row.get(8)?,
                unavailable_reason: row.get(9)?,
                period: row.get(10)?,
                bytes: bytes.collect::<rusqlite::Result<_>>()?,
            })
        },
    )?;
    let (unshared, unshared_other) = unshared_places(session, limit)?;
    let kinds = session.rows(
        "SELECT kind, sum(bytes) FROM fork_unshared GROUP BY kind ORDER BY sum(bytes) DESC, kind",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let noted: Vec<i64> =
        session.rows("SELECT count(micros) FROM fork_load", [], |row| row.get(0))?;
    Ok(ForkAudit {
        children,
        loads: loads(session, "<>", "sum(cum) DESC")?,
        missing: loads(session, "=", "sum(stats) + sum(opens) DESC")?,
        unshared,
        unshared_other,
        kinds,
        has_attempts: noted.first().is_some_and(|&noted| noted > 0),
    })
}

/// Attempts whose outcome is, or is not, that nothing was found.
fn loads(session: &AnalysisSession, is: &str, order: &str) -> Result<Vec<ForkLoad>, AnalysisError> {
    // The last row of each is the first attempt.
    let sites = session.rows(
        &format!(
            "SELECT name, kind, outcome, site FROM fork_load WHERE outcome {is} 'not found' \
             ORDER BY position DESC"
        ),
        [],
        |row| Ok((key(row)?, row.get::<_, String>(3)?)),
    )?;
    let mut sites: HashMap<[String; 3], String> = sites.into_iter().collect();
    let sql = format!(
        "SELECT name, kind, outcome, count(DISTINCT profile), count(*), max(cum), sum(flat), \
         sum(cum), sum(micros), sum(stats), sum(opens) FROM fork_load \
         WHERE outcome {is} 'not found' GROUP BY name, kind, outcome ORDER BY {order}, name"
    );
    session.rows(&sql, [], |row| {
        let key = key(row)?;
        let site = sites.remove(&key).unwrap_or_default();
        let [name, kind, outcome] = key;
        Ok(ForkLoad {
            name,
            kind,
            outcome,
            children: row.get(3)?,
            attempts: row.get(4)?,
            each: row.get(5)?,
            flat: row.get(6)?,
            cum: row.get(7)?,
            micros: row.get(8)?,
            stats: row.get(9)?,
            opens: row.get(10)?,
            site,
        })
    })
}

/// What a row of loads is known by: name, kind and outcome.
fn key(row: &Row<'_>) -> rusqlite::Result<[String; 3]> {
    Ok([row.get(0)?, row.get(1)?, row.get(2)?])
}

type UnsharedPlaces = (Vec<ForkUnsharedPlace>, [i64; 2]);

fn unshared_places(
    session: &AnalysisSession,
    limit: Option<usize>,
) -> Result<UnsharedPlaces, AnalysisError> {
    let granularity = Granularity::Lines;
    let (places, order) = (
        place::columns(granularity, "e"),
        place::order(granularity, "e"),
    );
    let limit = limit.map_or(String::new(), |n| format!(" LIMIT {n}"));
    let sql = format!(
        "SELECT {places}, u.kind, count(DISTINCT u.profile), max(u.bytes), sum(u.bytes), \
         sum(u.objects) FROM fork_unshared u JOIN entity e ON e.id = u.entity \
         JOIN function f ON f.id = e.function GROUP BY u.kind, u.entity \
         ORDER BY sum(u.bytes) DESC, u.kind, {order}{limit}"
    );
    let rows = session.rows(&sql, [], |row| {
        Ok(ForkUnsharedPlace {
            place: CodePlace::read(row, 0)?,
            kind: row.get(place::PLACE_COLUMN_COUNT)?,
            children: row.get(place::PLACE_COLUMN_COUNT + 1)?,
            each: row.get(place::PLACE_COLUMN_COUNT + 2)?,
            bytes: row.get(place::PLACE_COLUMN_COUNT + 3)?,
            objects: row.get(place::PLACE_COLUMN_COUNT + 4)?,
        })
    })?;
    let all: Vec<[i64; 2]> = session.rows(
        "SELECT ifnull(sum(bytes), 0), count(*) FROM (SELECT sum(bytes) AS bytes \
         FROM fork_unshared GROUP BY kind, entity)",
        [],
        |row| Ok([row.get(0)?, row.get(1)?]),
    )?;
    let [bytes, count] = all.first().copied().unwrap_or_default();
    let shown: i64 = rows.iter().map(|row| row.bytes).sum();
    let other = [bytes - shown, count - rows.len() as i64];
    Ok((rows, other))
}

/// A rule of `--fail-if`: a figure, and what it may not exceed.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkRule {
    text: String,
    figure: ForkFigure,
    or_equal: bool,
    bound: f64,
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForkFigure {
    /// How many files and texts were loaded.
    Loaded,
    /// How many bytes that took in all children.
    LoadedSpace,
    /// How many names were looked for in vain.
    Missing,
    /// The most bytes that a child has inherited and has alone.
    Unshared,
    /// The most bytes that a child has allocated.
    New,
    /// The most bytes that a child has alone and has written.
    PrivateDirty,
}

/// A rule that broke.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkRuleViolation {
    /// The rule as the user wrote it.
    pub rule: String,
    /// The figure.
    pub value: i64,
    /// Whether it counts bytes.
    pub is_bytes: bool,
    /// The child that has it, if it is of one.
    pub pid: Option<i64>,
}

impl ForkRule {
    /// Reads a rule. `size` reads a number of bytes.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str, size: impl Fn(&str) -> Option<u64>) -> Result<Self, AnalysisError> {
        let error = |why: &str| AnalysisError::Rule {
            rule: text.to_string(),
            why: why.to_string(),
        };
        let (left, right) = text
            .split_once('>')
            .ok_or_else(|| error("needs a >, as in 'loaded > 0' or 'unshared > 20MiB'"))?;
        let (or_equal, right) = match right.strip_prefix('=') {
            Some(right) => (true, right.trim()),
            None => (false, right.trim()),
        };
        let count = right.parse::<u64>().ok();
        let figure = match (left.trim(), count) {
            ("loaded", Some(_)) => ForkFigure::Loaded,
            ("loaded", None) => ForkFigure::LoadedSpace,
            ("missing", Some(_)) => ForkFigure::Missing,
            ("missing", None) => return Err(error("missing is a number without a unit")),
            ("unshared" | "copied", _) => ForkFigure::Unshared,
            ("new", _) => ForkFigure::New,
            ("private_dirty", _) => ForkFigure::PrivateDirty,
            _ => {
                return Err(error(
                    "knows loaded, missing, copied, new and private_dirty",
                ));
            }
        };
        let bound = count.or_else(|| size(right));
        let bound = bound.ok_or_else(|| error("needs a number or a size behind the >"))?;
        Ok(Self {
            text: text.to_string(),
            figure,
            or_equal,
            bound: bound as f64,
        })
    }

    /// How the rule broke; `None` if it holds.
    #[must_use]
    pub fn find_violation(&self, audit: &ForkAudit) -> Option<ForkRuleViolation> {
        let loaded = || audit.loads.iter().filter(|load| load.outcome == "loaded");
        // Code that is made of text can't be loaded before the fork.
        let files = || loaded().filter(|load| load.kind != "string eval");
        let most = |name: &str| {
            let all = audit.children.iter();
            let all = all.map(|child| (child.bytes_of(name), Some(child.pid)));
            all.max_by_key(|&(bytes, _)| bytes).unwrap_or((0, None))
        };
        let (value, pid) = match self.figure {
            ForkFigure::Loaded => (files().count() as i64, None),
            ForkFigure::LoadedSpace => (loaded().map(|load| load.flat).sum(), None),
            ForkFigure::Missing => (audit.missing.len() as i64, None),
            ForkFigure::Unshared => most("unshared_space"),
            ForkFigure::New => most("new_space"),
            ForkFigure::PrivateDirty => most("private_dirty"),
        };
        let is_broken = match self.or_equal {
            true => value as f64 >= self.bound,
            false => value as f64 > self.bound,
        };
        is_broken.then(|| ForkRuleViolation {
            rule: self.text.clone(),
            value,
            is_bytes: !matches!(self.figure, ForkFigure::Loaded | ForkFigure::Missing),
            pid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit() -> ForkAudit {
        let child = |pid, unshared| ForkChild {
            pid,
            bytes: vec![("unshared_space", unshared)],
            ..ForkChild::default()
        };
        let load = |outcome: &str, flat| ForkLoad {
            outcome: outcome.to_string(),
            flat,
            ..ForkLoad::default()
        };
        let text = ForkLoad {
            kind: "string eval".to_string(),
            ..load("loaded", 24)
        };
        ForkAudit {
            children: vec![child(7, 10), child(8, 40_960)],
            loads: vec![
                load("loaded", 500),
                load("loaded", 500),
                load("failed", 9),
                text,
            ],
            missing: vec![load("not found", 0)],
            ..ForkAudit::default()
        }
    }

    #[test]
    fn rules_are_judged() {
        let size = |text: &str| {
            text.strip_suffix("KiB")?
                .parse::<u64>()
                .ok()
                .map(|n| n << 10)
        };
        for (rule, value, pid) in [
            ("loaded > 1", Some(2), None),
            ("loaded > 2", None, None),
            ("loaded>=2", Some(2), None),
            ("loaded > 1KiB", None, None),
            ("loaded >= 1024", None, None),
            ("copied > 40KiB", None, None),
            ("copied > 1KiB", Some(40_960), Some(8)),
            ("missing > 0", Some(1), None),
            ("unshared > 39KiB", Some(40_960), Some(8)),
            ("unshared >= 40KiB", Some(40_960), Some(8)),
            ("unshared > 40KiB", None, None),
            ("new > 0", None, None),
        ] {
            let broken = ForkRule::parse(rule, size)
                .unwrap()
                .find_violation(&audit());
            assert_eq!(broken.as_ref().map(|of| of.value), value, "{rule}");
            assert_eq!(broken.and_then(|of| of.pid), pid, "{rule}");
        }
        for rule in ["loaded", "other > 1", "missing > 1KiB", "unshared > x", ">"] {
            assert!(ForkRule::parse(rule, size).is_err(), "{rule}");
        }
    }
}
