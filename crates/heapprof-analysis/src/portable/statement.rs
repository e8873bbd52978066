//! `top`, `diff` and `growth` as one statement each, with the same text for every engine: SQLite,
//! DuckDB, DataFusion, ClickHouse.
//!
//! The text keeps to what an engine of 2018 can do: nested SELECTs with one JOIN each by USING,
//! aliases for all of them, UNION ALL, whole numbers only. Rows that were stored twice count once:
//! sums are of the largest of equal rows. Profiles are named, because their ids differ between a
//! database and other stores.

use crate::store::HEAP_TYPES;

/// What a statement is about.
#[derive(Clone, Debug)]
pub struct PortableQuery<'a> {
    /// The sample type and its unit.
    pub sample_type: (&'a str, &'a str),
    /// How many rows of `top` and `diff` are wanted; all if it is `None`. `growth` gives all,
    /// because a statement can't rank them.
    pub limit: Option<usize>,
}

/// Ids or other numbers, with commas between them.
pub(super) fn list(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    numbers.join(", ")
}

/// A text as SQL has it. No text with a backslash is the same in every engine, so nobody should ask
/// for one.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn names(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!(
        "SELECT id FROM profile WHERE name IN ({})",
        names.join(", ")
    )
}

impl PortableQuery<'_> {
    /// The rows of samples of profiles: profile, stack, and value. Each is there once.
    fn samples(&self, profiles: &str) -> String {
        let (name, unit) = self.sample_type;
        match HEAP_TYPES.contains(&self.sample_type) {
            true => format!(
                "SELECT profile, stack, label_set, MAX({name}) AS value FROM heap_sample \
                 WHERE profile IN ({profiles}) GROUP BY profile, stack, label_set"
            ),
            false => format!(
                "SELECT profile, stack, label_set, MAX(value) AS value FROM other_sample \
                 WHERE profile IN ({profiles}) AND type IN (SELECT id FROM sample_type WHERE type \
                 = {} AND unit = {}) GROUP BY profile, stack, label_set",
                quoted(name),
                quoted(unit)
            ),
        }
    }

    fn limit(&self) -> String {
        self.limit
            .map_or_else(String::new, |limit| format!(" LIMIT {limit}"))
    }
}

/// The functions of stacks, and the names of functions, each once.
const FUNCTIONS: &str = "(SELECT stack, function, MAX(is_leaf) AS is_leaf FROM stack_function \
                         GROUP BY stack, function)";
const NAMES: &str = "(SELECT id AS function, MAX(name) AS name FROM \"function\" GROUP BY id)";

/// Flat and cum of functions over profiles: name, flat, cum.
pub fn top_sql(query: &PortableQuery<'_>, profiles: &[&str]) -> String {
    format!(
        "SELECT name, flat, cum FROM (SELECT name, SUM(own) AS flat, SUM(under) AS cum FROM \
         (SELECT function, SUM(CASE WHEN is_leaf = 1 THEN held ELSE 0 END) AS own, SUM(held) AS \
         under FROM (SELECT stack, SUM(value) AS held FROM ({}) AS d GROUP BY stack) AS s JOIN \
         {FUNCTIONS} AS k USING (stack) GROUP BY function) AS g JOIN {NAMES} AS f USING \
         (function) GROUP BY name) AS t WHERE flat <> 0 OR cum <> 0 ORDER BY abs(flat) DESC, \
         abs(cum) DESC, name{}",
        query.samples(&names(profiles)),
        query.limit()
    )
}

/// The same before and after: name, before_flat, after_flat, before_cum, after_cum, of functions
/// whose flat value changed.
pub fn diff_sql(query: &PortableQuery<'_>, before: &[&str], after: &[&str]) -> String {
    let part = |held: &str, other: &str, of: &[&str]| {
        format!(
            "SELECT stack, {held}, {other} FROM ({}) AS d GROUP BY stack",
            query.samples(&names(of))
        )
    };
    // 0 of the same type in every engine.
    let (held, nothing) = ("SUM(value)", "SUM(value * 0)");
    let parts = [
        part(
            &format!("{held} AS before_part"),
            &format!("{nothing} AS after_part"),
            before,
        ),
        part(
            &format!("{nothing} AS before_part"),
            &format!("{held} AS after_part"),
            after,
        ),
    ];
    format!(
        "SELECT name, before_flat, after_flat, before_cum, after_cum FROM (SELECT name, \
         SUM(before_own) AS before_flat, SUM(after_own) AS after_flat, SUM(before_under) AS \
         before_cum, SUM(after_under) AS after_cum FROM (SELECT function, SUM(CASE WHEN is_leaf = \
         1 THEN before_held ELSE 0 END) AS before_own, SUM(CASE WHEN is_leaf = 1 THEN after_held \
         ELSE 0 END) AS after_own, SUM(before_held) AS before_under, SUM(after_held) AS \
         after_under FROM (SELECT stack, SUM(before_part) AS before_held, SUM(after_part) AS \
         after_held FROM ({}) AS u GROUP BY stack) AS s JOIN {FUNCTIONS} AS k USING (stack) GROUP \
         BY function) AS g JOIN {NAMES} AS f USING (function) GROUP BY name) AS t WHERE \
         after_flat <> before_flat ORDER BY abs(after_flat - before_flat) DESC, name{}",
        parts.join(" UNION ALL "),
        query.limit()
    )
}

/// What each function holds itself in each profile: profile's name, function's name, flat.
pub fn growth_sql(query: &PortableQuery<'_>, profiles: &[&str]) -> String {
    format!(
        "SELECT moment, name, flat FROM (SELECT profile, name, SUM(own) AS flat FROM (SELECT \
         profile, function, SUM(held) AS own FROM (SELECT profile, stack, SUM(value) AS held FROM \
         ({}) AS d GROUP BY profile, stack) AS s JOIN (SELECT stack, function FROM stack_function \
         WHERE is_leaf = 1 GROUP BY stack, function) AS k USING (stack) GROUP BY profile, \
         function) AS g JOIN {NAMES} AS f USING (function) GROUP BY profile, name) AS t JOIN \
         (SELECT id AS profile, MAX(name) AS moment FROM profile GROUP BY id) AS p USING \
         (profile) WHERE flat <> 0 ORDER BY moment, name",
        query.samples(&names(profiles))
    )
}
