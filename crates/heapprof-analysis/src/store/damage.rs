//! The error for a database whose rows do not fit together.

use crate::error::Error;

/// The error for a row that others refer to and that is not there.
pub(super) fn damaged(what: &str, id: i64) -> Error {
    Error::Sql(format!("{what} {id} is missing: the database is damaged"))
}
