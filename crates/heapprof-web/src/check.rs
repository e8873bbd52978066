//! Checks of what rows refer to.

use crate::Error;

/// Checks that an index leads to a row.
pub(crate) fn refers(
    what: &'static str,
    row: usize,
    refers: &'static str,
    index: usize,
    count: usize,
) -> Result<(), Error> {
    if index < count {
        return Ok(());
    }
    Err(Error::Missing {
        what,
        row,
        refers,
        index,
        count,
    })
}

/// Checks the length of a list.
pub(crate) fn length(what: &'static str, found: usize, wanted: usize) -> Result<(), Error> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::Length {
        what,
        found,
        wanted,
    })
}
