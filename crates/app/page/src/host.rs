//! The services that a page gets from the program that serves it.

use std::collections::BTreeMap;

use anyhow::{Error, Result};
use heapprof_web::ApiRefusal;

use crate::paths::PathRule;
use crate::question::QuestionNote;

/// The program that serves a page.
pub trait PageHost: Send + Sync {
    /// Returns the text of an error, in one line, with advice on what to do about it.
    fn error_text(&self, error: &Error) -> String;

    /// Returns the text of a note, in one line.
    fn note_text(&self, note: &QuestionNote<'_>) -> String;

    /// Returns the name of a parameter, for the message that refuses its value.
    fn parameter_name(&self, key: &str) -> String;

    /// Returns a command for each view of a page, by the view's name. The command shows the same
    /// rows as the view.
    fn view_commands(
        &self,
        names: &[String],
        base: &[String],
        paths: &PathRule,
    ) -> BTreeMap<String, String>;

    /// Returns texts with advice about the program's options.
    fn words(&self) -> PageWords;

    /// Whether an argument names a process, whose profile changes over time.
    fn is_process(&self, argument: &str) -> bool;

    /// Replaces each folder by the profiles in it, as separate profiles.
    fn expand_names(&self, names: &[String]) -> Result<Vec<String>>;

    /// Returns the present time in milliseconds since 1970 UTC.
    fn now_millis(&self) -> i64;
}

/// The program's texts with advice about its options.
#[derive(Clone, Copy)]
pub struct PageWords {
    /// Advice on how to find out which values a parameter may have.
    pub values: &'static str,
    /// Advice on how to start a server that takes profiles.
    pub upload: &'static str,
    /// The reason why lines of source files are not shown.
    pub closed_sources: &'static str,
    /// Advice on how to start a server that opens the binaries of profiles.
    pub closed_binaries: &'static str,
}

/// Returns the refusal of a question that can't be answered, with the text that the command line
/// has for the error.
pub(crate) fn refusal(host: &dyn PageHost, error: &Error) -> ApiRefusal {
    ApiRefusal {
        status: 400,
        what: host.error_text(error),
        ..ApiRefusal::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A host without options.
    pub(crate) struct TestHost;

    impl PageHost for TestHost {
        fn error_text(&self, error: &Error) -> String {
            format!("{error:#}")
        }

        fn note_text(&self, _: &QuestionNote<'_>) -> String {
            String::new()
        }

        fn parameter_name(&self, key: &str) -> String {
            key.to_string()
        }

        fn view_commands(
            &self,
            _: &[String],
            _: &[String],
            _: &PathRule,
        ) -> BTreeMap<String, String> {
            BTreeMap::new()
        }

        fn words(&self) -> PageWords {
            PageWords {
                values: "",
                upload: "",
                closed_sources: "",
                closed_binaries: "",
            }
        }

        fn is_process(&self, _: &str) -> bool {
            false
        }

        fn expand_names(&self, names: &[String]) -> Result<Vec<String>> {
            Ok(names.to_vec())
        }

        fn now_millis(&self) -> i64 {
            0
        }
    }
}
