//! This program's services for the page: it puts errors and notes into words, and finds processes.

use std::collections::BTreeMap;

use anyhow::{Error, Result};
use heapprof_page::{PageHost, PageWords, PathRule, QuestionNote};
use heapprof_process::clock;

use super::super::report::expand_names;
use super::super::view_commands::view_commands;
use crate::advice::question_note_text;
use crate::{messages, outside};

/// This program as the host of the page that it serves.
pub(super) struct CommandLinePage;

impl PageHost for CommandLinePage {
    fn error_text(&self, error: &Error) -> String {
        messages::text(error)
    }

    fn note_text(&self, note: &QuestionNote<'_>) -> String {
        question_note_text(note)
    }

    /// Returns the option of a parameter, spelled as in the help of the command.
    fn parameter_name(&self, key: &str) -> String {
        let value = match key {
            "sort" => " <ORDER>",
            "limit" => " <ROWS>",
            "granularity" => " <LEVEL>",
            "min_percent" => " <PERCENT>",
            "wrappers" => " <REGEX>",
            _ => "",
        };
        format!("--{}{value}", key.replace('_', "-"))
    }

    fn view_commands(
        &self,
        names: &[String],
        base: &[String],
        paths: &PathRule,
    ) -> BTreeMap<String, String> {
        view_commands(names, base, paths)
    }

    fn words(&self) -> PageWords {
        PageWords {
            values: "heapprof --help lists the possible values",
            upload: "Start it with heapprof web --upload",
            closed_sources: "source files are read with --source only",
            closed_binaries: "Start heapprof web with --source",
        }
    }

    fn is_process(&self, argument: &str) -> bool {
        outside::is_process(argument)
    }

    fn expand_names(&self, names: &[String]) -> Result<Vec<String>> {
        expand_names(names)
    }

    fn now_millis(&self) -> i64 {
        clock::millis()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use heapprof_page::ParameterValues;

    use super::*;
    use crate::args::Cli;

    /// Tests that the page refuses the same values as the command line, in the same words.
    #[test]
    fn values_are_refused_as_on_the_command_line() {
        for own in [
            &[("sort", "size")][..],
            &[("sort", "a\n b\n\nc")],
            &[("granularity", "atoms")],
            &[("limit", "-1")],
            &[("limit", "x"), ("sort", "size")],
            &[("limit", "99999999999999999999999")],
            &[("wrappers", "(")],
            &[("wrappers", "(?x)a # b")],
            &[("wrappers", "x"), ("all_frames", "1")],
            &[("all_frames", "1"), ("wrappers", "x")],
        ] {
            let refused = ParameterValues::parse(own, &CommandLinePage)
                .err()
                .expect("a refusal");
            let words = own.iter().map(|(key, value)| match *key {
                "all_frames" => "--all-frames".to_string(),
                key => format!("--{}={value}", key.replace('_', "-")),
            });
            let words = ["heapprof".to_string(), "top".to_string()]
                .into_iter()
                .chain(words);
            let said = Cli::try_parse_from(words).unwrap_err().to_string();
            let said = said.split("\n\n").next().unwrap_or_default();
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(format!("error: {}", refused.what), said);
        }
        let refused = ParameterValues::parse(&[("min_percent", "x")], &CommandLinePage).err();
        let words = ["heapprof", "tree", "--min-percent=x"];
        let said = Cli::try_parse_from(words).unwrap_err().to_string();
        assert!(said.contains(&refused.expect("a refusal").what), "{said}");
    }
}
