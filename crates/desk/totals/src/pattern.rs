//! Regular expressions of users. Errors are one line.

mod go;

use regex::Regex;

pub use go::go_regex;

use crate::error::TotalsError;

/// Returns the error of a regular expression in one line. The drawing of the expression in the
/// error is left out.
pub fn regex_error(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or(&text).trim();
    format!(
        "not a regular expression: {}",
        last.trim_start_matches("error: ")
    )
}

/// Compiles the expression of a filter, if the filter is set.
pub fn compile(filter: &'static str, text: &Option<String>) -> Result<Option<Regex>, TotalsError> {
    let Some(text) = text else { return Ok(None) };
    let regex = Regex::new(text).map_err(|error| TotalsError::Filter {
        filter,
        text: text.clone(),
        why: regex_error(&error),
    })?;
    Ok(Some(regex))
}
