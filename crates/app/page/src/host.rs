//! What the program that serves a page does for it.

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

    /// Returns what a parameter of a command is called where its value is refused.
    fn parameter_name(&self, key: &str) -> String;

    /// Returns the command that shows the same as each view of a page, by the view's name.
    fn view_commands(
        &self,
        names: &[String],
        base: &[String],
        paths: &PathRule,
    ) -> BTreeMap<String, String>;

    /// Returns the fixed texts.
    fn words(&self) -> PageWords;

    /// Whether an argument names a process, which changes by itself.
    fn is_process(&self, argument: &str) -> bool;

    /// Returns the profiles that are named. A folder stands for the profiles in it, each by itself.
    fn expand_names(&self, names: &[String]) -> Result<Vec<String>>;

    /// Returns the present time in milliseconds since 1970 UTC.
    fn now_millis(&self) -> i64;
}

/// Texts that advise to use an option of the program.
#[derive(Clone, Copy)]
pub struct PageWords {
    /// How to find out which values a parameter may have.
    pub values: &'static str,
    /// How to start a server that takes profiles.
    pub upload: &'static str,
    /// Why lines of source files are not shown.
    pub closed_sources: &'static str,
}

/// Returns the refusal of a question that can't be answered, with the message of the command line.
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
