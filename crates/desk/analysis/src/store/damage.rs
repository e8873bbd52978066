//! The error for a database whose rows do not fit together.

use crate::error::AnalysisError;

/// The error for a row that others refer to and that is not there.
pub(super) fn damage_error(what: &str, id: i64) -> AnalysisError {
    AnalysisError::Sql(format!("{what} {id} is missing: the database is damaged"))
}
