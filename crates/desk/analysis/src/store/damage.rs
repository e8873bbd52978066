//! The error for a database whose rows do not fit together.

use crate::error::AnalysisError;

/// Returns the error for a missing row that other rows refer to.
pub(super) fn damage_error(what: &str, id: i64) -> AnalysisError {
    AnalysisError::Sql(format!("{what} {id} is missing: the database is damaged"))
}
