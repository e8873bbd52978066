//! Checks that rows refer to existing rows, and that lists have the right lengths.

use crate::PackError;

/// Checks that an index refers to an existing row.
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

/// Checks that a list has the expected length.
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
