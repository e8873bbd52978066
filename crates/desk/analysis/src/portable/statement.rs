//! The reports `top`, `diff` and `growth` as one statement each, with the same text for every
//! engine: SQLite, DuckDB, DataFusion, ClickHouse.
//!
//! The text is limited to the SQL of an engine of 2018: nested SELECTs, at most one JOIN with USING
//! in each SELECT, an alias for each nested SELECT, UNION ALL, and whole numbers. Rows that were
//! stored twice count once, because sums take the largest of equal rows. The statements refer to
//! profiles by name, because ids differ between a database and other stores.

use crate::store::HEAP_TYPES;

/// The sample type of a statement, and the limit on its rows.
#[derive(Clone, Debug)]
pub struct PortableQuery<'a> {
    /// The name and unit of the sample type.
    pub sample_type: (&'a str, &'a str),
    /// The largest number of rows of `top` and `diff`; `None` means all. `growth` always gives all
    /// rows, because a statement can't rank them.
    pub limit: Option<usize>,
}

/// Returns numbers as a list for SQL, with commas between them.
pub(super) fn list(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    numbers.join(", ")
}

/// Returns a text as a SQL literal. The text must have no backslash, because engines read a
/// backslash in a literal in different ways.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn names(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| quote(name)).collect();
    format!(
        "SELECT id FROM profile WHERE name IN ({})",
        names.join(", ")
    )
}

impl PortableQuery<'_> {
    /// Returns the SQL for the samples of profiles: profile, stack, label set and value. Rows that
    /// were stored twice count once.
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
                quote(name),
                quote(unit)
            ),
        }
    }

    fn limit(&self) -> String {
        self.limit
            .map_or_else(String::new, |limit| format!(" LIMIT {limit}"))
    }
}

/// SQL for the functions of stacks, without duplicate rows.
const STACK_FUNCTIONS_SQL: &str = "(SELECT stack, function, MAX(is_leaf) AS is_leaf FROM stack_function \
                         GROUP BY stack, function)";
/// SQL for the names and files of functions, without duplicate rows.
const FUNCTION_NAMES_SQL: &str = "(SELECT id AS function, MAX(name) AS name, MAX(filename) AS file FROM \
                     \"function\" GROUP BY id)";

/// Returns the SQL that counts the files of each function name on each side of a comparison. A side
/// is all earlier or all later profiles in `diff`, and one profile in `growth`. The columns are
/// side, name, number of files, and one of the files. `stacks` is the SQL for the stacks of all
/// sides.
fn files_of_names(stacks: &str) -> String {
    format!(
        "SELECT side, name, COUNT(*) AS files, MIN(file) AS one_file FROM (SELECT side, name, \
         file FROM (SELECT side, function FROM ({stacks}) AS a JOIN {STACK_FUNCTIONS_SQL} AS b \
         USING (stack) GROUP BY side, function) AS c JOIN {FUNCTION_NAMES_SQL} AS e USING \
         (function) GROUP BY side, name, file) AS h GROUP BY side, name"
    )
}

/// Returns the statement that adds up flat and cum of each function over profiles. Its columns are
/// name, flat, cum, file.
pub fn top_sql(query: &PortableQuery<'_>, profiles: &[&str]) -> String {
    format!(
        "SELECT name, flat, cum, file FROM (SELECT name, file, SUM(own) AS flat, SUM(under) AS \
         cum FROM (SELECT function, SUM(CASE WHEN is_leaf = 1 THEN held ELSE 0 END) AS own, \
         SUM(held) AS under FROM (SELECT stack, SUM(value) AS held FROM ({}) AS d GROUP BY stack) \
         AS s JOIN {STACK_FUNCTIONS_SQL} AS k USING (stack) GROUP BY function) AS g JOIN \
         {FUNCTION_NAMES_SQL} AS f USING (function) GROUP BY name, file) AS t WHERE flat <> 0 OR \
         cum <> 0 ORDER BY abs(flat) DESC, abs(cum) DESC, name, file{}",
        query.samples(&names(profiles)),
        query.limit()
    )
}

/// Returns the statement for the flat and cum of functions whose flat value changed. Its columns
/// are name, before_flat, after_flat, before_cum, after_cum, file. As in reports, a name is one
/// function if it has one file in the earlier profiles and one file in the later profiles. The
/// column `file` then has the earlier file.
pub fn diff_sql(query: &PortableQuery<'_>, before: &[&str], after: &[&str]) -> String {
    let part = |held: &str, other: &str, of: &[&str]| {
        format!(
            "SELECT stack, {held}, {other} FROM ({}) AS d GROUP BY stack",
            query.samples(&names(of))
        )
    };
    // `SUM(value * 0)` is 0 with the same type in every engine.
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
    let stacks = [(1, before), (2, after)].map(|(side, of)| {
        let of = names(of);
        let table = |table: &str| {
            format!("SELECT {side} AS side, stack FROM {table} WHERE profile IN ({of})")
        };
        [table("heap_sample"), table("other_sample")].join(" UNION ALL ")
    });
    let files = files_of_names(&stacks.join(" UNION ALL "));
    format!(
        "SELECT name, before_flat, after_flat, before_cum, after_cum, file FROM (SELECT name, \
         file, SUM(before_own) AS before_flat, SUM(after_own) AS after_flat, SUM(before_under) AS \
         before_cum, SUM(after_under) AS after_cum FROM (SELECT name, CASE WHEN most_files = 1 AND \
         sides = 2 THEN before_file ELSE own_file END AS file, before_own, after_own, \
         before_under, after_under FROM (SELECT name, file AS own_file, before_own, after_own, \
         before_under, after_under FROM (SELECT function, SUM(CASE WHEN is_leaf = 1 THEN \
         before_held ELSE 0 END) AS before_own, SUM(CASE WHEN is_leaf = 1 THEN after_held ELSE 0 \
         END) AS after_own, SUM(before_held) AS before_under, SUM(after_held) AS after_under FROM \
         (SELECT stack, SUM(before_part) AS before_held, SUM(after_part) AS after_held FROM ({}) \
         AS u GROUP BY stack) AS s JOIN {STACK_FUNCTIONS_SQL} AS k USING (stack) GROUP BY \
         function) AS g JOIN {FUNCTION_NAMES_SQL} AS f USING (function)) AS o JOIN (SELECT name, \
         MAX(files) AS most_files, COUNT(*) AS sides, MAX(CASE WHEN side = 1 THEN one_file ELSE '' \
         END) AS before_file FROM ({files}) AS n GROUP BY name) AS m USING (name)) AS p GROUP BY \
         name, file) AS t WHERE after_flat <> before_flat ORDER BY abs(after_flat - before_flat) \
         DESC, name, file{}",
        parts.join(" UNION ALL "),
        query.limit()
    )
}

/// Returns the statement for the flat value of each function in each profile. Its columns are the
/// profile's name, the function's name, flat, file. As in reports, a name is one function if it has
/// one file in each profile. The column `file` then has the first of these files in alphabetical
/// order.
pub fn growth_sql(query: &PortableQuery<'_>, profiles: &[&str]) -> String {
    let samples = query.samples(&names(profiles));
    let files = files_of_names(&format!(
        "SELECT profile AS side, stack FROM ({samples}) AS i WHERE value <> 0"
    ));
    format!(
        "SELECT moment, name, flat, file FROM (SELECT profile, name, flat, CASE WHEN most_files = \
         1 THEN first_file ELSE own_file END AS file FROM (SELECT profile, name, file AS own_file, \
         SUM(own) AS flat FROM (SELECT profile, function, SUM(held) AS own FROM (SELECT profile, \
         stack, SUM(value) AS held FROM ({samples}) AS d GROUP BY profile, stack) AS s JOIN \
         (SELECT stack, function FROM stack_function WHERE is_leaf = 1 GROUP BY stack, function) \
         AS k USING (stack) GROUP BY profile, function) AS g JOIN {FUNCTION_NAMES_SQL} AS f USING \
         (function) GROUP BY profile, name, file) AS o JOIN (SELECT name, MAX(files) AS \
         most_files, MIN(one_file) AS first_file FROM ({files}) AS n GROUP BY name) AS m USING \
         (name)) AS t JOIN (SELECT id AS profile, MAX(name) AS moment FROM profile GROUP BY id) AS \
         p USING (profile) WHERE flat <> 0 ORDER BY moment, name, file"
    )
}
