//! Checks of what rows refer to.

use crate::PackError;

/// Checks that an index leads to a row.
pub(crate) fn check_index(
    what: &'static str,
    row: usize,
    refers: &'static str,
    index: usize,
    count: usize,
) -> Result<(), PackError> {
    if index < count {
        return Ok(());
    }
    Err(PackError::MissingRow {
        what,
        row,
        refers,
        index,
        count,
    })
}

/// Checks the length of a list.
pub(crate) fn check_length(
    what: &'static str,
    found: usize,
    wanted: usize,
) -> Result<(), PackError> {
    if found == wanted {
        return Ok(());
    }
    Err(PackError::WrongLength {
        what,
        found,
        wanted,
    })
}
