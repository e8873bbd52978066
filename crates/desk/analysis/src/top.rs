//! The report `top`: entities by flat or cum, with the rest in one row.

use rusqlite::Row;

use crate::error::AnalysisError;
use crate::header::{ReportHeader, SampleType, header};
use crate::place::{self, CodePlace};
use crate::session::{AnalysisSession, ESTIMATE_COLUMN_COUNT, read_estimate};
use crate::wrapper::{AllocationWrapper, wrappers};
use heapprof_totals::estimate::ValueEstimate;
use heapprof_totals::query::{Query, SortKey};

/// A row of `top`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopRow {
    /// The place in the code that the row is about.
    pub place: CodePlace,
    /// The sum over the samples whose leaf is the place.
    pub flat: i64,
    /// The sum over the samples that have the place anywhere in their stack.
    pub cum: i64,
    /// The ranges of flat and cum; `None` if they are exact.
    pub estimates: [Option<ValueEstimate>; 2],
    /// Flat and cum of every sample type, if the report is about all types.
    pub values: Vec<(i64, i64)>,
    /// The ranges of the values in `values`.
    pub values_estimates: Vec<[Option<ValueEstimate>; 2]>,
}

/// The rows that a limit left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherRows {
    /// The sum of the rows' flat values.
    pub flat: i64,
    /// The number of rows.
    pub rows: i64,
    /// The number of rows with a flat value.
    pub holders: i64,
    /// The sum of the rows' flat values for every sample type, if the report is about all types.
    pub values: Vec<i64>,
    /// The sum that the filters left out, for every sample type, if the report is about all types.
    pub left_out: Vec<i64>,
}

/// The report `top`.
#[derive(Clone, Debug, Default)]
pub struct TopReport {
    /// The header of the report.
    pub header: ReportHeader,
    /// The value that the rows are ordered by.
    pub sort: SortKey,
    /// The rows, in order.
    pub rows: Vec<TopRow>,
    /// The rows that the limit left out.
    pub other: OtherRows,
    /// The functions whose short names may equal the short name of a row. The list is empty for a
    /// stored profile.
    pub similar_names: Vec<String>,
    /// The functions among the rows that look like wrappers of malloc. Empty until
    /// [`add_code_hints`] finds them.
    pub wrappers: Vec<AllocationWrapper>,
    /// Every sample type, with the position in this list of the type that counts its objects. Empty
    /// unless the report is about all types.
    pub types: Vec<(SampleType, Option<usize>)>,
}

/// Reports the entities of `profile` (from 1) in the query's order. With `wide`, the report is
/// about all sample types.
pub fn top(
    session: &AnalysisSession,
    profile: i64,
    query: &Query,
    wide: bool,
) -> Result<TopReport, AnalysisError> {
    let (header, r#type) = header(session, profile, query)?;
    let mut top = TopReport {
        header,
        sort: query.sort,
        ..TopReport::default()
    };
    let all = match wide {
        true => all_types(session, profile)?,
        false => Vec::new(),
    };
    top.other.left_out = all.iter().map(|t| t.2).collect();
    let types: Vec<(i64, SampleType)> = all.into_iter().map(|t| (t.0, t.1)).collect();
    let (places, order) = (
        place::columns(query.granularity, "t"),
        place::order(query.granularity, "t"),
    );
    let (first, second) = match query.sort {
        SortKey::Flat => ("flat", "cum"),
        SortKey::Cum => ("cum", "flat"),
    };
    // Without a limit SQLite sorts all rows at once instead of keeping them ordered one by one.
    let limit = query.limit.map_or(String::new(), |n| format!(" LIMIT {n}"));
    let read = |row: &Row<'_>| {
        let of_types = (0..types.len()).map(AmountColumns::of_type);
        let values = of_types.clone().map(|columns| columns.values(row));
        let estimates = of_types.map(|columns| columns.estimates(row));
        let ordered = AmountColumns::ORDERED;
        let (flat, cum) = ordered.values(row)?;
        Ok(TopRow {
            place: CodePlace::read(row, 0)?,
            flat,
            cum,
            estimates: ordered.estimates(row)?,
            values: values.collect::<rusqlite::Result<_>>()?,
            values_estimates: estimates.collect::<rusqlite::Result<_>>()?,
        })
    };
    if wide && types.len() > MAX_WIDE_TYPES {
        return Err(AnalysisError::InProfile {
            name: top.header.profile,
            error: Box::new(AnalysisError::TooWide {
                types: types.len(),
                most: MAX_WIDE_TYPES,
            }),
        });
    }
    let sql = match wide {
        false => format!(
            "SELECT {places}, t.flat, t.cum, {} FROM function_total t \
             JOIN function f ON f.id = t.function WHERE t.profile = ?1 AND t.type = ?2 \
             ORDER BY abs(t.{first}) DESC, abs(t.{second}) DESC, {order}{limit}",
            estimates("t")
        ),
        true => wide_sql(query, &types, [first, second]) + &limit,
    };
    top.rows = session.rows(&sql, [profile, r#type], read)?;

    let sums = session.rows(
        "SELECT count(*), ifnull(sum(flat), 0), ifnull(sum(flat <> 0), 0) FROM function_total \
         WHERE profile = ?1 AND type = ?2",
        [profile, r#type],
        |row| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let (mut rows, flat, holders): (i64, i64, i64) = sums.first().copied().unwrap_or_default();
    if wide {
        let count = format!(
            "SELECT count(DISTINCT {}) FROM function_total WHERE profile = ?1",
            "entity"
        );
        rows = session
            .rows(&count, [profile], |row| row.get(0))?
            .first()
            .copied()
            .unwrap_or(0);
        for (i, (id, _)) in types.iter().enumerate() {
            let shown: i64 = top.rows.iter().map(|r| r.values[i].0).sum();
            let sum: Vec<i64> = session.rows(
                "SELECT ifnull(sum(flat), 0) FROM function_total WHERE profile = ?1 AND type = ?2",
                [profile, *id],
                |row| row.get(0),
            )?;
            top.other
                .values
                .push(sum.first().copied().unwrap_or(0) - shown);
        }
    }
    top.other.rows = rows - top.rows.len() as i64;
    let shown = top.rows.iter().filter(|row| row.flat != 0).count();
    top.other.holders = holders - shown as i64;
    top.other.flat = flat - top.rows.iter().map(|r| r.flat).sum::<i64>();
    let names: Vec<SampleType> = types.into_iter().map(|(_, name)| name).collect();
    top.types = names
        .iter()
        .map(|t| (t.clone(), matching_count(&names, t)))
        .collect();
    let shown = top.rows.iter().map(|row| &*row.place.function);
    top.similar_names = session.similar_names(shown);
    Ok(top)
}

/// Finds the functions among the rows that look like wrappers of malloc. The session has one
/// profile.
pub fn add_code_hints(
    session: &AnalysisSession,
    query: &Query,
    report: &mut TopReport,
) -> Result<(), AnalysisError> {
    report.wrappers = wrappers(session, 1, query)?;
    Ok(())
}

/// The positions of the columns of one sample type in a row.
struct AmountColumns {
    flat: usize,
    cum: usize,
    flat_estimate: usize,
    cum_estimate: usize,
}

impl AmountColumns {
    /// The number of columns for one sample type.
    const COUNT: usize = 2 + 2 * ESTIMATE_COLUMN_COUNT;
    /// The positions of the columns for the type that rows are ordered by. They follow the columns
    /// of the place.
    const ORDERED: Self = Self::begin(place::PLACE_COLUMN_COUNT);

    const fn begin(flat: usize) -> Self {
        let cum = flat + 1;
        let flat_estimate = cum + 1;
        Self {
            flat,
            cum,
            flat_estimate,
            cum_estimate: flat_estimate + ESTIMATE_COLUMN_COUNT,
        }
    }

    /// Returns the positions of the columns for the type at this position, in a report about all
    /// types. They follow the columns of the type that rows are ordered by.
    const fn of_type(position: usize) -> Self {
        Self::begin(Self::ORDERED.flat + (1 + position) * Self::COUNT)
    }

    fn values(&self, row: &Row<'_>) -> rusqlite::Result<(i64, i64)> {
        Ok((row.get(self.flat)?, row.get(self.cum)?))
    }

    fn estimates(&self, row: &Row<'_>) -> rusqlite::Result<[Option<ValueEstimate>; 2]> {
        Ok([
            read_estimate(row, self.flat_estimate)?,
            read_estimate(row, self.cum_estimate)?,
        ])
    }
}

/// Returns the columns for the ranges of flat and cum in a table.
fn estimates(t: &str) -> String {
    let (flat, cum) = (
        AnalysisSession::estimate_columns(t, ""),
        AnalysisSession::estimate_columns(t, "cum_"),
    );
    format!("{flat}, {cum}")
}

/// Maximum number of sample types that [`wide_sql`] puts side by side: SQLite joins 64 tables.
const MAX_WIDE_TYPES: usize = 60;

/// Returns the statement for a report about all types: the flat and cum of the type that rows are
/// ordered by, then the flat and cum of every sample type.
fn wide_sql(query: &Query, types: &[(i64, SampleType)], [first, second]: [&str; 2]) -> String {
    let (places, order) = (
        place::columns(query.granularity, "e"),
        place::order(query.granularity, "e"),
    );
    let both = |t: &str| {
        let estimates = estimates(t);
        format!(", ifnull({t}.flat, 0), ifnull({t}.cum, 0), {estimates}")
    };
    let mut sql = format!("SELECT {places}{}", both("t"));
    for i in 0..types.len() {
        sql.push_str(&both(&format!("t{i}")));
    }
    sql.push_str(
        " FROM (SELECT DISTINCT entity, function, line, address FROM function_total \
         WHERE profile = ?1) e JOIN function f ON f.id = e.function LEFT JOIN function_total t \
         ON t.profile = ?1 AND t.type = ?2 AND t.entity = e.entity",
    );
    for (i, (id, _)) in types.iter().enumerate() {
        sql.push_str(&format!(
            " LEFT JOIN function_total t{i} ON t{i}.profile = ?1 AND t{i}.type = {id} \
             AND t{i}.entity = e.entity"
        ));
    }
    sql.push_str(&format!(
        " ORDER BY abs(ifnull(t.{first}, 0)) DESC, abs(ifnull(t.{second}, 0)) DESC, {order}"
    ));
    sql
}

/// Returns the sample types of a profile, in the profile's order, each with the sum that the
/// filters left out.
fn all_types(
    session: &AnalysisSession,
    profile: i64,
) -> Result<Vec<(i64, SampleType, i64)>, AnalysisError> {
    session.rows(
        "SELECT s.id, s.type, s.unit, t.net - t.kept_net FROM profile_total t \
         JOIN sample_type s ON s.id = t.type WHERE t.profile = ?1 ORDER BY t.position",
        [profile],
        |row| {
            let sample_type = SampleType {
                r#type: row.get(1)?,
                unit: row.get(2)?,
            };
            Ok((row.get(0)?, sample_type, row.get(3)?))
        },
    )
}

/// Finds the type that counts the objects of a type: `inuse_objects` for `inuse_space`, `objects`
/// for `space`, and so on.
fn matching_count(types: &[SampleType], of: &SampleType) -> Option<usize> {
    let name = format!("{}objects", of.r#type.strip_suffix("space")?);
    types.iter().position(|t| t.r#type == name)
}
