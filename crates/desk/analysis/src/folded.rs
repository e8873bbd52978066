//! Folded stacks, the form that flame graph tools exchange: each stack is root first and has one
//! value.

use crate::error::AnalysisError;
use crate::header::{ReportHeader, header};
use crate::place::{PlaceId, PlaceTable, StackReader};
use crate::session::AnalysisSession;
use heapprof_totals::query::Query;

/// Calls `each` with every distinct stack of the session's only profile, and with the stack's sum
/// over all labels. The stacks come in the order of their names, and each has its leaf first.
pub fn each_folded_stack(
    session: &AnalysisSession,
    query: &Query,
    mut each: impl FnMut(&PlaceTable, &[PlaceId], i64) -> std::io::Result<()>,
) -> Result<Result<ReportHeader, std::io::Error>, AnalysisError> {
    let (header, r#type) = header(session, 1, query)?;
    let sums: Vec<(i64, i64)> = session.rows(
        "SELECT stack, sum(value) FROM sample WHERE profile = 1 AND type = ?1 \
         GROUP BY stack ORDER BY stack",
        [r#type],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut sums = sums.into_iter().peekable();
    let mut written = Ok(());
    let places = PlaceTable::for_stacks(session, query.granularity)?;
    StackReader::new(session).each(|stack, frames| {
        while let Some((of, value)) = sums.next_if(|(of, _)| *of <= stack) {
            if of == stack && value != 0 && written.is_ok() {
                written = each(&places, frames, value);
            }
        }
    })?;
    Ok(written.map(|()| header))
}
