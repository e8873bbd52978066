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
    // The table gives frames stack by stack, leaf first; CROSS JOIN makes SQLite read it in that order.
    let sql = format!(
        "SELECT {}, t.stack FROM frame t CROSS JOIN function f ON f.id = t.function",
        place::columns(query.granularity, "t")
    );
    let mut sums = sums.into_iter().peekable();
    let mut frames: Vec<Place> = Vec::new();
    let mut current = 0;
    let mut failed = Ok(());
    let mut write = |stack: i64, frames: &mut Vec<Place>| {
        frames.reverse();
        while let Some((of, value)) = sums.next_if(|(of, _)| *of <= stack) {
            if of == stack && value != 0 && failed.is_ok() {
                failed = each(frames, value);
            }
        }
        frames.clear();
    };
    session.rows(&sql, [], |row| {
        let stack: i64 = row.get(4)?;
        if stack != current {
            write(current, &mut frames);
            current = stack;
        }
        frames.push(Place::read(row, 0)?);
        Ok(())
    })?;
    write(current, &mut frames);
    Ok(failed.map(|()| header))
}
