//! The report `list`: matching functions with the flat and cum of each of their lines.
//!
//! The sums of a function come from a question by function and file, and the sums of its lines come
//! from a question by line. A sample counts once in both, so recursion can't push a line or the
//! function beyond the total.

use std::collections::HashMap;

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
    let mut of_rows = vec![Vec::new(); rows.len()];
    each_place(lines, &rows, "t.line", r#type, |row, place| {
        of_rows[row].push(place);
    })?;
    for (row, lines) in rows.iter_mut().zip(of_rows) {
        row.lines = lines;
    }
    Ok(ListReport { header, rows, more })
}

/// An address of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressValues {
    /// The address, as the profile of the session has it.
    pub address: u64,
    /// The sum over the samples whose leaf is there.
    pub flat: i64,
    /// The sum over the samples that have the address anywhere in their stack.
    pub cum: i64,
}

/// Returns the values of each address of the functions of a report `list`, in the order of its
/// rows. `addresses` is a session by address of the same profile.
pub fn list_addresses(
    addresses: &AnalysisSession,
    list: &ListReport,
    query: &Query,
) -> Result<Vec<Vec<AddressValues>>, AnalysisError> {
    let (_, r#type) = header(addresses, 1, query)?;
    let mut values = vec![Vec::new(); list.rows.len()];
    let each = |row: usize, (address, flat, cum): (i64, i64, i64)| {
        let address = address as u64;
        values[row].push(AddressValues { address, flat, cum });
    };
    each_place(addresses, &list.rows, "t.address", r#type, each)?;
    Ok(values)
}

/// Calls `each` for each line or address of functions: with the index of the function, and with the
/// place, its flat and its cum. `column` has the place; the lowest comes first.
fn each_place(
    session: &AnalysisSession,
    functions: &[FunctionListing],
    column: &str,
    r#type: i64,
    mut each: impl FnMut(usize, (i64, i64, i64)),
) -> Result<(), AnalysisError> {
    let index: HashMap<(&str, &str), usize> = functions
        .iter()
        .zip(0..)
        .map(|(row, at)| ((&*row.function, &*row.file), at))
        .collect();
    session.rows(
        &format!(
            "SELECT f.name, f.filename, {column}, t.flat, t.cum FROM function_total t \
             JOIN function f ON f.id = t.function WHERE t.profile = 1 AND t.type = ?1 \
             ORDER BY {column}"
        ),
        [r#type],
        |row| {
            let (name, file): (String, String) = (row.get(0)?, row.get(1)?);
            if let Some(&at) = index.get(&(&*name, &*file)) {
                each(at, (row.get(2)?, row.get(3)?, row.get(4)?));
            }
            Ok(())
        },
    )?;
    Ok(())
}
