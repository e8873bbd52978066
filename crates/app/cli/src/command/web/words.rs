//! The commands that a server answers: the parameters of a question are the options of a command,
//! and the answer is what the command prints with `--format json`.

use std::ffi::OsString;

use clap::Parser;
use heapprof_web::{ApiAnswer, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE};
use serde_json::json;

use super::super::reporting::run_reporting_command;
use super::library::ProfileLibrary;
use super::{refusal, unknown_parameter};
use crate::args::Cli;
use crate::context::CommandContext;
use crate::name;

/// The profiles that a command is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProfileScope {
    /// The last of the chosen profiles.
    One,
    /// All chosen profiles.
    All,
    /// The base and the last of the chosen profiles.
    Two,
    /// No profile.
    Nothing,
}

/// A command that a client can ask for.
struct WebCommand {
    name: &'static str,
    about: ProfileScope,
    /// Whether the command wants a regular expression, in the parameter `regex`.
    wants_regex: bool,
    /// The command's options besides those that all questions have.
    options: &'static [&'static str],
    /// The command's switches besides those that all questions have.
    switches: &'static [&'static str],
    /// Whether the command has the options and switches of all questions.
    is_question: bool,
}

/// The options of all questions.
const QUESTION_OPTIONS: [&str; 13] = [
    "sample_type",
    "granularity",
    "wrappers",
    "focus",
    "ignore",
    "hide",
    "show",
    "show_from",
    "prune_from",
    "tag_focus",
    "tag_ignore",
    "tag_root",
    "tag_leaf",
];
/// The switches of all questions.
const QUESTION_SWITCHES: [&str; 4] = [
    "no_inlines",
    "own_code",
    "all_frames",
    "relative_percentages",
];
/// The parameters that choose the profiles of a question.
pub(super) const CHOICE_PARAMETERS: [&str; 2] = ["profile", "base"];

/// All commands that a server answers.
const WEB_COMMANDS: &[WebCommand] = &[
    WebCommand {
        options: &["sort", "limit"],
        switches: &["wide"],
        ..WebCommand::about_one("top")
    },
    WebCommand {
        options: &["min_percent"],
        switches: &["reverse", "full"],
        ..WebCommand::about_one("tree")
    },
    WebCommand {
        options: &["sort", "limit"],
        wants_regex: true,
        ..WebCommand::about_one("peek")
    },
    WebCommand {
        options: &["limit"],
        wants_regex: true,
        ..WebCommand::about_one("list")
    },
    WebCommand {
        options: &["limit", "tag_show", "tag_hide"],
        ..WebCommand::about_one("traces")
    },
    WebCommand {
        options: &["tag_show", "tag_hide"],
        ..WebCommand::about_one("tags")
    },
    WebCommand::about_one("stats"),
    WebCommand {
        options: &["limit"],
        ..WebCommand::about_one("leaks")
    },
    WebCommand {
        is_question: false,
        ..WebCommand::about_one("info")
    },
    WebCommand {
        about: ProfileScope::All,
        is_question: false,
        ..WebCommand::about_one("timeline")
    },
    WebCommand {
        about: ProfileScope::Two,
        options: &["sort", "limit"],
        switches: &["normalize"],
        ..WebCommand::about_one("diff")
    },
    WebCommand {
        about: ProfileScope::Nothing,
        is_question: false,
        ..WebCommand::about_one("schema")
    },
];

/// The requests that are not commands: the path, the method, the parameters and the switches.
const OTHER_REQUESTS: [(&str, &str, &[&str], &[&str]); 6] = [
    ("commands", "GET", &[], &[]),
    ("profiles", "GET", &[], &[]),
    (
        "report",
        "GET",
        &["profile", "base", "focus", "ignore"],
        &[],
    ),
    (
        "subtree",
        "GET",
        &["profile", "base", "focus", "ignore", "path"],
        &[],
    ),
    ("sql", "POST", &["profile", "base"], &["database"]),
    ("upload", "POST", &["name"], &[]),
];

impl WebCommand {
    const fn about_one(name: &'static str) -> Self {
        Self {
            name,
            about: ProfileScope::One,
            wants_regex: false,
            options: &[],
            switches: &[],
            is_question: true,
        }
    }

    fn options(&self) -> impl Iterator<Item = &'static str> {
        let all: &'static [&'static str] = if self.is_question {
            &QUESTION_OPTIONS
        } else {
            &[]
        };
        self.options.iter().chain(all).copied()
    }

    fn switches(&self) -> impl Iterator<Item = &'static str> {
        let all: &'static [&'static str] = if self.is_question {
            &QUESTION_SWITCHES
        } else {
            &[]
        };
        self.switches.iter().chain(all).copied()
    }

    /// Returns the command line, without profiles. Each option is one word, so that no value can be
    /// taken for an option.
    fn words(&self, asked: &ApiRequest) -> Result<Vec<OsString>, ApiRefusal> {
        let mut words = vec!["heapprof".into(), self.name.into()];
        if self.name != "schema" {
            words.push("--format=json".into());
        }
        let mut regex = None;
        for (key, value) in &asked.parameters {
            let key = key.as_str();
            if CHOICE_PARAMETERS.contains(&key) {
                continue;
            }
            if key == "regex" && self.wants_regex {
                regex = Some(value.clone());
            } else if self.options().any(|option| option == key) {
                // The page sends every parameter, also empty ones.
                if !value.is_empty() {
                    words.push(format!("--{}={value}", key.replace('_', "-")).into());
                }
            } else if self.switches().any(|switch| switch == key) {
                if parse_switch(key, value)? {
                    words.push(format!("--{}", key.replace('_', "-")).into());
                }
            } else {
                let known = self.options().chain(self.switches());
                return Err(unknown_parameter(asked, key, known));
            }
        }
        words.push("--".into());
        if self.wants_regex {
            let missing =
                || ApiRefusal::new(400, format!("{} wants regex", self.name), "Add regex=");
            words.push(regex.ok_or_else(missing)?.into());
        }
        Ok(words)
    }
}

/// Whether a switch is on.
pub(super) fn parse_switch(key: &str, value: &str) -> Result<bool, ApiRefusal> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => {
            let what = format!("{key} is a switch, not {value:?}");
            Err(ApiRefusal::new(400, what, "Say 1 or 0"))
        }
    }
}

/// Answers a command.
pub(super) fn answer(
    library: &ProfileLibrary,
    asked: &ApiRequest,
    source: bool,
) -> Result<ApiAnswer, ApiRefusal> {
    let command = WEB_COMMANDS
        .iter()
        .find(|command| command.name == asked.path);
    let Some(command) = command else {
        let what = format!("There is no /{}", asked.path);
        return Err(ApiRefusal::new(
            404,
            what,
            "Ask /api/v1/commands for what there is",
        ));
    };
    let mut words = command.words(asked)?;
    let mut names = library.parse_choice(asked)?.names;
    match command.about {
        ProfileScope::All => {}
        ProfileScope::One => names = names.split_off(names.len() - 1),
        ProfileScope::Two if names.len() == 2 => {}
        ProfileScope::Two => {
            let help = "Say which with base= and profile=";
            return Err(ApiRefusal::new(400, "diff compares two profiles", help));
        }
        ProfileScope::Nothing => names.clear(),
    }
    words.extend(names.iter().map(|name| name::path(name).into_os_string()));
    let cli = Cli::try_parse_from(words).map_err(|error| {
        // The first paragraph of the error says what is wrong; a value in it may have line ends.
        let text = error.to_string();
        let said = text.split("\n\n").next().unwrap_or_default();
        let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let help = "heapprof --help says what values there are";
        ApiRefusal::new(400, line.trim_start_matches("error: "), help)
    })?;
    let context = CommandContext::capturing(library.sources(&names)?, source);
    run_reporting_command(&context, &cli.command).map_err(|error| refusal(&error))?;
    let kept = context.into_captured();
    Ok(ApiAnswer {
        media: if command.name == "schema" {
            "text/plain; charset=utf-8"
        } else {
            JSON_MEDIA_TYPE
        },
        body: Some(kept.text),
        tag: None,
        notes: kept.notes,
    })
}

/// Describes all requests, for authors of programs that send them.
pub(super) fn describe_api(takes_profiles: bool) -> serde_json::Value {
    let one = |command: &WebCommand| {
        let regex = command.wants_regex.then_some("regex");
        let choice = (command.about != ProfileScope::Nothing)
            .then_some(CHOICE_PARAMETERS)
            .into_iter()
            .flatten();
        let options = choice.chain(regex).chain(command.options());
        json!({
            "path": format!("/api/v1/{}", command.name),
            "method": "GET",
            "parameters": options.collect::<Vec<_>>(),
            "switches": command.switches().collect::<Vec<_>>(),
        })
    };
    let other = |(path, method, parameters, switches): &(&str, &str, &[&str], &[&str])| {
        json!({
            "path": format!("/api/v1/{path}"),
            "method": method,
            "parameters": parameters,
            "switches": switches,
        })
    };
    let others = OTHER_REQUESTS
        .iter()
        .filter(|other| takes_profiles || other.0 != "upload");
    let commands: Vec<_> = WEB_COMMANDS
        .iter()
        .map(one)
        .chain(others.map(other))
        .collect();
    json!({ "version": 1, "commands": commands })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, parameters: &[(&str, &str)]) -> ApiRequest {
        let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        ApiRequest {
            path: path.to_string(),
            parameters: parameters.iter().map(owned).collect(),
            ..ApiRequest::default()
        }
    }

    /// Every option that is offered is an option of the command, and a value is never an option.
    #[test]
    fn parameters_are_the_options_of_the_command() {
        for command in WEB_COMMANDS {
            let value = |option: &str| match option {
                "sort" => "cum",
                "granularity" => "lines",
                "limit" | "min_percent" => "3",
                _ => "--output=/tmp/x",
            };
            let mut all: Vec<(&str, &str)> = command
                .options()
                .map(|option| (option, value(option)))
                .collect();
            // The switches exclude each other.
            let switches = command.switches().filter(|switch| *switch != "all_frames");
            all.extend(switches.map(|switch| (switch, "1")));
            if command.wants_regex {
                all.push(("regex", "--output=/tmp/x"));
            }
            let mut words = command.words(&asked(command.name, &all)).unwrap();
            words.extend(
                ["a".into(), "b".into()]
                    .into_iter()
                    .take(match command.about {
                        ProfileScope::Nothing => 0,
                        ProfileScope::One => 1,
                        ProfileScope::Two | ProfileScope::All => 2,
                    }),
            );
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{words:?}: {error}");
            }
        }
    }

    #[test]
    fn what_a_command_does_not_have_is_refused() {
        let top = &WEB_COMMANDS[0];
        for (key, value, wanted) in [
            ("output", "/tmp/x", "has no parameter \"output\""),
            ("fail_if", "x", "has no parameter"),
            ("source_path", "/", "has no parameter"),
            ("wide", "maybe", "is a switch"),
        ] {
            let refused = top.words(&asked("top", &[(key, value)])).unwrap_err();
            assert!(refused.what.contains(wanted), "{}", refused.what);
        }
    }
}
