//! Regular expressions that users give, with errors in one line.

mod go;

use regex::Regex;

pub use go::go_regex;

use crate::error::TotalsError;

/// Returns the error of a regular expression in one line, without the picture of the expression
/// that comes with it.
pub fn regex_error(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or(&text).trim();
    format!(
        "not a regular expression: {}",
        last.trim_start_matches("error: ")
    )
}

/// Compiles the expression given for an option, if there is one.
pub fn compile(option: &'static str, text: &Option<String>) -> Result<Option<Regex>, TotalsError> {
    let Some(text) = text else { return Ok(None) };
    let regex = Regex::new(text).map_err(|error| TotalsError::Filter {
        option,
        text: text.clone(),
        why: regex_error(&error),
    })?;
    Ok(Some(regex))
}
