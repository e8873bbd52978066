//! Folded stacks: root first, one value a stack, the form that flame graph tools exchange.

use crate::error::Error;
use crate::header::{Header, header};
use crate::place::{self, Place};
use crate::query::Query;
use crate::session::Session;

/// Gives each distinct stack of the session's only profile with its sum, labels aside, in the order of
/// the stacks' names. Stacks come root first.
pub fn folded(
    session: &Session,
    query: &Query,
    mut each: impl FnMut(&[Place], i64) -> std::io::Result<()>,
) -> Result<Result<Header, std::io::Error>, Error> {
    let (header, r#type) = header(session, 1, query)?;
    let sums: Vec<(i64, i64)> = session.rows(
        "SELECT stack, sum(value) FROM sample WHERE profile = 1 AND type = ?1 \
         GROUP BY stack ORDER BY stack",
        [r#type],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let sql = format!(
        "SELECT {} FROM frame t JOIN function f ON f.id = t.function \
         WHERE t.stack = ?1 ORDER BY t.position DESC",
        place::columns(query.granularity, "t")
    );
    for (stack, value) in sums {
        let frames = session.rows(&sql, [stack], |row| Place::read(row, 0))?;
        if value != 0
            && let Err(error) = each(&frames, value)
        {
            return Ok(Err(error));
        }
    }
    Ok(Ok(header))
}
