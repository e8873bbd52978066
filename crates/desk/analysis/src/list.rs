//! The report `list`: matching functions with the flat and cum of each of their lines.
//!
//! The sums of a function come from a question by function and file, and the sums of its lines come
//! from a question by line. A sample counts once in both, so recursion can't push a line or the
//! function beyond the total.

use crate::error::AnalysisError;
use crate::header::{ReportHeader, header};
use crate::session::AnalysisSession;
use heapprof_totals::query::Query;

/// A function in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionListing {
    /// The function's name.
    pub function: String,
    /// The source file, as the profile names it.
    pub file: String,
    /// The sum over the samples whose leaf is in the function.
    pub flat: i64,
    /// The sum over the samples that have the function anywhere in their stack.
    pub cum: i64,
    /// The lines, each with its number (0 if unknown), flat and cum.
    pub lines: Vec<(i64, i64, i64)>,
}

/// The report `list`.
#[derive(Clone, Debug, Default)]
pub struct ListReport {
    /// The header of the report.
    pub header: ReportHeader,
    /// The functions, by cum, the largest first.
    pub rows: Vec<FunctionListing>,
    /// The number of further functions that matched.
    pub more: usize,
}

/// Lists the functions whose name `wanted` accepts. `functions` is a session by function and file,
/// and `lines` is a session by line of the same profile.
pub fn list(
    functions: &AnalysisSession,
    lines: &AnalysisSession,
    query: &Query,
    wanted: impl Fn(&str) -> bool,
) -> Result<ListReport, AnalysisError> {
    let (header, r#type) = header(functions, 1, query)?;
    let mut rows: Vec<FunctionListing> = functions.rows(
        "SELECT f.name, f.filename, t.flat, t.cum FROM function_total t \
         JOIN function f ON f.id = t.function WHERE t.profile = 1 AND t.type = ?1 \
         ORDER BY abs(t.cum) DESC, abs(t.flat) DESC, f.name, f.filename",
        [r#type],
        |row| {
            Ok(FunctionListing {
                function: row.get(0)?,
                file: row.get(1)?,
                flat: row.get(2)?,
                cum: row.get(3)?,
                lines: Vec::new(),
            })
        },
    )?;
    rows.retain(|row| wanted(&row.function));
    let more = query
        .limit
        .map_or(0, |limit| rows.len().saturating_sub(limit));
    rows.truncate(rows.len() - more);
    let mut index = std::collections::HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        index.insert((row.function.clone(), row.file.clone()), at);
    }
    lines.rows(
        "SELECT f.name, f.filename, t.line, t.flat, t.cum FROM function_total t \
         JOIN function f ON f.id = t.function WHERE t.profile = 1 AND t.type = ?1 ORDER BY t.line",
        [r#type],
        |row| {
            if let Some(&at) = index.get(&(row.get(0)?, row.get(1)?)) {
                rows[at].lines.push((row.get(2)?, row.get(3)?, row.get(4)?));
            }
            Ok(())
        },
    )?;
    Ok(ListReport { header, rows, more })
}

/// An address of a function with its flat and cum.
pub type AddressValues = (u64, i64, i64);

/// Returns flat and cum of each address of the functions of a report `list`, in the order of its
/// rows. `addresses` is a session by address of the same profile.
pub fn list_addresses(
    addresses: &AnalysisSession,
    list: &ListReport,
    query: &Query,
) -> Result<Vec<Vec<AddressValues>>, AnalysisError> {
    let (_, r#type) = header(addresses, 1, query)?;
    let mut values = vec![Vec::new(); list.rows.len()];
    let mut index = std::collections::HashMap::new();
    for (at, row) in list.rows.iter().enumerate() {
        index.insert((row.function.clone(), row.file.clone()), at);
    }
    addresses.rows(
        "SELECT f.name, f.filename, t.address, t.flat, t.cum FROM function_total t \
         JOIN function f ON f.id = t.function WHERE t.profile = 1 AND t.type = ?1",
        [r#type],
        |row| {
            if let Some(&at) = index.get(&(row.get(0)?, row.get(1)?)) {
                let address: i64 = row.get(2)?;
                values[at].push((address as u64, row.get(3)?, row.get(4)?));
            }
            Ok(())
        },
    )?;
    Ok(values)
}
