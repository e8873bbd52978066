//! The report `fork-audit`: how much forked children share, what they load too late, and whose
//! memory they copy.

use std::collections::HashMap;

use heapprof_totals::query::Granularity;
use rusqlite::Row;

use crate::error::AnalysisError;
use crate::place::{self, CodePlace};
use crate::session::AnalysisSession;

/// A forked child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkChild {
    /// The process id of the child.
    pub pid: i64,
    /// The process id of the child's parent.
    pub parent: i64,
    /// The number of forks between the first process and the child.
    pub generation: i64,
    /// The file name of the child's program.
    pub program: String,
    /// The child's command line when it was last audited.
    pub title: String,
    /// The time when the child was forked, in microseconds since 1970.
    pub time_micros: i64,
    /// The child's age when it was last audited, in microseconds.
    pub audited_micros: i64,
    /// The child's age when it ended, in microseconds.
    pub age_micros: i64,
    /// How the child ended: `ended`, `exec`, `killed` or `running`.
    pub ending: String,
    /// The child's sizes in bytes, by the names of columns of `fork_child`.
    pub bytes: Vec<(&'static str, i64)>,
    /// The mean number of bytes between samples of the child's allocations; 1 if all allocations
    /// are known.
    pub period: i64,
    /// The reason why a fact about the child is missing; empty if no fact is missing.
    pub unavailable_reason: String,
}

impl ForkChild {
    /// Returns the size with this name, in bytes.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> i64 {
        let found = self.bytes.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, bytes)| *bytes)
    }
}

/// A file or module that children loaded, or tried to load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkLoad {
    /// The name of the file or module, as the program requested it.
    pub name: String,
    /// The kind of load: `require`, `do`, `string eval`, `XS` or `dlopen`.
    pub kind: String,
    /// The outcome: `loaded`, `failed` or `not found`.
    pub outcome: String,
    /// The number of children that tried to load the file or module.
    pub children: i64,
    /// The number of attempts to load the file or module, in all children.
    pub attempts: i64,
    /// The largest number of bytes that loading the file took in one child process. Files that the
    /// loaded file loads are included.
    pub each: i64,
    /// Number of bytes that loading the file took in all child processes, without the files that
    /// the loaded file loads.
    pub flat: i64,
    /// Number of bytes that loading the file took in all child processes, with the files that the
    /// loaded file loads.
    pub cum: i64,
    /// The time that all attempts took, in microseconds, if it was recorded.
    pub micros: Option<i64>,
    /// The number of system calls that query a path, in all searches for the file.
    pub stats: i64,
    /// The number of system calls that open a file, in all searches for the file.
    pub opens: i64,
    /// The code that first requested the load, and its callers.
    pub site: String,
}

/// A place in the code whose allocations lie on pages that children no longer share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkUnsharedPlace {
    /// The kind of the memory.
    pub kind: String,
    /// The place that allocated the memory.
    pub place: CodePlace,
    /// The number of children that no longer share the memory.
    pub children: i64,
    /// The largest number of bytes that one child no longer shares.
    pub each: i64,
    /// The bytes that children no longer share, summed over all children.
    pub bytes: i64,
    /// The number of allocations that children no longer share, summed over all children.
    pub objects: i64,
}

/// The report `fork-audit`.
#[derive(Clone, Debug, Default)]
pub struct ForkAudit {
    /// The children, in the order of their forks.
    pub children: Vec<ForkChild>,
    /// The loads whose outcome is `loaded` or `failed`, ordered by the bytes that they took in all
    /// children.
    pub loads: Vec<ForkLoad>,
    /// The loads whose outcome is `not found`, ordered by the number of system calls that the
    /// searches took.
    pub missing: Vec<ForkLoad>,
    /// The places whose memory lies on pages that are not shared any more, ordered by the bytes in
    /// all children. There are at most as many places as the limit of the report allows.
    pub unshared: Vec<ForkUnsharedPlace>,
    /// The bytes of the places that the limit left out, and the number of these places.
    pub unshared_other: [i64; 2],
    /// The bytes on pages that are not shared any more, by kind, in all children.
    pub kinds: Vec<(String, i64)>,
    /// Whether attempts to load files were recorded. If false, only the memory that loads allocated
    /// is known.
    pub has_attempts: bool,
}

/// The columns of `fork_child` that are sizes in bytes.
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

/// The position of the first of [`BYTE_COLUMNS`] in a child's row.
const FIRST_BYTE_COLUMN: usize = 11;

/// The positions of the columns in a row about unshared memory. The columns of the row's place in
/// the code come first.
mod unshared_column {
    use crate::place::PLACE_COLUMN_COUNT;

    pub(super) const KIND: usize = PLACE_COLUMN_COUNT;
    pub(super) const CHILDREN: usize = KIND + 1;
    pub(super) const EACH: usize = CHILDREN + 1;
    pub(super) const BYTES: usize = EACH + 1;
    pub(super) const OBJECTS: usize = BYTES + 1;
}

/// Makes the report `fork-audit` of a session, with at most `limit` places of unshared memory.
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
            let bytes = (FIRST_BYTE_COLUMN..).zip(BYTE_COLUMNS);
            let bytes = bytes.map(|(column, name)| Ok((name, row.get(column)?)));
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

/// Returns the loads whose outcome is `not found` (if `is` is the SQL operator `=`), or all other
/// loads (if `is` is `<>`).
fn loads(session: &AnalysisSession, is: &str, order: &str) -> Result<Vec<ForkLoad>, AnalysisError> {
    // Of equal loads, the first attempt comes last, so its site stays in the map.
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

/// Returns the texts that identify a row of loads: name, kind and outcome.
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
            kind: row.get(unshared_column::KIND)?,
            children: row.get(unshared_column::CHILDREN)?,
            each: row.get(unshared_column::EACH)?,
            bytes: row.get(unshared_column::BYTES)?,
            objects: row.get(unshared_column::OBJECTS)?,
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

/// A rule of `--fail-if`: a figure and the bound that it may not exceed.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkRule {
    text: String,
    figure: ForkFigure,
    or_equal: bool,
    bound: f64,
}

/// The figure that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForkFigure {
    /// The number of files that were loaded.
    Loaded,
    /// The bytes that loading files and code texts took, in all children together.
    LoadedSpace,
    /// The number of names that no search found.
    Missing,
    /// The most bytes that one child inherited and no longer shares.
    Unshared,
    /// The most bytes that one child allocated.
    New,
    /// The most bytes of private dirty memory of one child: memory that no other process shares and
    /// that was written to.
    PrivateDirty,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkRuleViolation {
    /// The rule as the user wrote it.
    pub rule: String,
    /// The value of the figure.
    pub value: i64,
    /// Whether the value is in bytes.
    pub is_bytes: bool,
    /// The process id of the child with this value, if the figure is about one child.
    pub pid: Option<i64>,
}

impl ForkRule {
    /// Parses a rule. `size` parses a number of bytes.
    ///
    /// # Errors
    /// The text is no rule; the error says why.
    pub fn parse(text: &str, size: impl Fn(&str) -> Option<u64>) -> Result<Self, AnalysisError> {
        let error = |why: &str| AnalysisError::Rule {
            rule: text.to_string(),
            why: why.to_string(),
        };
        let (left, right) = text
            .split_once('>')
            .ok_or_else(|| error("needs a >, as in 'loaded > 0' or 'copied > 20MiB'"))?;
        let (or_equal, right) = match right.strip_prefix('=') {
            Some(right) => (true, right.trim()),
            None => (false, right.trim()),
        };
        let count = right.parse::<u64>().ok();
        let figure = match (left.trim(), count) {
            ("loaded", Some(_)) => ForkFigure::Loaded,
            ("loaded", None) => ForkFigure::LoadedSpace,
            ("missing", Some(_)) => ForkFigure::Missing,
            ("missing", None) => return Err(error("missing takes a number without a unit")),
            ("unshared" | "copied", _) => ForkFigure::Unshared,
            ("new", _) => ForkFigure::New,
            ("private_dirty", _) => ForkFigure::PrivateDirty,
            _ => {
                return Err(error(
                    "is not known; use loaded, missing, copied, new or private_dirty",
                ));
            }
        };
        let bound = count.or_else(|| size(right));
        let bound = bound.ok_or_else(|| error("needs a number or a size after the >"))?;
        Ok(Self {
            text: text.to_string(),
            figure,
            or_equal,
            bound: bound as f64,
        })
    }

    /// Returns the violation of the rule by an audit; `None` if the audit satisfies the rule.
    #[must_use]
    pub fn find_violation(&self, audit: &ForkAudit) -> Option<ForkRuleViolation> {
        let loaded = || audit.loads.iter().filter(|load| load.outcome == "loaded");
        // Code that is made from text can't be loaded before the fork.
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
