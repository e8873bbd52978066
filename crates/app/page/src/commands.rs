//! The commands that a server answers: the parameters of each command, and the answer to a request.

use std::cell::RefCell;
use std::io::{self, Write};

use anyhow::Result;
use heapprof_web::{ApiAnswer, ApiRefusal, ApiRequest, JSON_MEDIA_TYPE};
use serde_json::json;

use crate::host::{PageHost, refusal};
use crate::library::ProfileLibrary;
use crate::parameters::{CHOICE_PARAMETERS, ParameterValues, parse_switch, unknown_parameter};
use crate::question::QuestionNote;
use crate::settings::PageSettings;
use crate::source_file::SourceFiles;
use crate::web_question::WebQuestion;

/// Which profiles a command is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProfileScope {
    /// The last of the chosen profiles.
    One,
    /// All chosen profiles.
    All,
    /// The base and the last of the chosen profiles.
    Two,
    /// The command is about no profile.
    Nothing,
}

/// A command that a client can request.
struct WebCommand {
    name: &'static str,
    about: ProfileScope,
    /// Whether the command wants a regular expression, in the parameter `regex`.
    wants_regex: bool,
    /// The command's options, in addition to [`QUESTION_OPTIONS`].
    options: &'static [&'static str],
    /// The command's switches, in addition to [`QUESTION_SWITCHES`].
    switches: &'static [&'static str],
    /// Whether the command has the options and switches that all questions share.
    is_question: bool,
    /// Makes the command's question from the values of its parameters.
    question: fn(ParameterValues) -> Result<WebQuestion>,
}

/// The options that every question accepts.
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
/// The switches that every question accepts.
const QUESTION_SWITCHES: [&str; 5] = [
    "no_inlines",
    "all_code",
    "own_code",
    "all_frames",
    "relative_percentages",
];

/// All commands that a server answers.
const WEB_COMMANDS: &[WebCommand] = &[
    WebCommand {
        options: &["sort", "limit"],
        switches: &["wide"],
        ..WebCommand::about_one("top", WebQuestion::top)
    },
    WebCommand {
        options: &["min_percent"],
        switches: &["reverse", "full"],
        ..WebCommand::about_one("tree", WebQuestion::tree)
    },
    WebCommand {
        options: &["sort", "limit"],
        wants_regex: true,
        ..WebCommand::about_one("peek", WebQuestion::peek)
    },
    WebCommand {
        options: &["limit"],
        switches: &["asm"],
        wants_regex: true,
        ..WebCommand::about_one("list", WebQuestion::list)
    },
    WebCommand {
        options: &["limit", "tag_show", "tag_hide"],
        ..WebCommand::about_one("traces", WebQuestion::traces)
    },
    WebCommand {
        options: &["tag_show", "tag_hide"],
        ..WebCommand::about_one("tags", WebQuestion::tags)
    },
    WebCommand::about_one("stats", WebQuestion::stats),
    WebCommand {
        options: &["limit"],
        ..WebCommand::about_one("leaks", WebQuestion::leaks)
    },
    WebCommand {
        is_question: false,
        ..WebCommand::about_one("info", WebQuestion::info)
    },
    WebCommand {
        about: ProfileScope::All,
        is_question: false,
        ..WebCommand::about_one("timeline", WebQuestion::timeline)
    },
    WebCommand {
        about: ProfileScope::Two,
        options: &["sort", "limit"],
        switches: &["normalize"],
        ..WebCommand::about_one("diff", WebQuestion::diff)
    },
    WebCommand {
        about: ProfileScope::Nothing,
        is_question: false,
        ..WebCommand::about_one("schema", WebQuestion::schema)
    },
];

/// The requests that are not commands: for each the path, the method, the parameters and the
/// switches.
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
    const fn about_one(
        name: &'static str,
        question: fn(ParameterValues) -> Result<WebQuestion>,
    ) -> Self {
        Self {
            name,
            about: ProfileScope::One,
            wants_regex: false,
            options: &[],
            switches: &[],
            is_question: true,
            question,
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

    /// Returns the parameters of a command's question, in the order of the request. Switches that
    /// are off, and parameters that choose profiles, are left out. Fails for a parameter that the
    /// command does not have.
    fn own_parameters<'a>(
        &self,
        asked: &'a ApiRequest,
    ) -> Result<Vec<(&'a str, &'a str)>, ApiRefusal> {
        let mut own = Vec::new();
        for (key, value) in &asked.parameters {
            let (key, value) = (key.as_str(), value.as_str());
            if CHOICE_PARAMETERS.contains(&key) {
                continue;
            }
            if key == "regex" && self.wants_regex {
                own.push((key, value));
            } else if self.options().any(|option| option == key) {
                // The page sends every parameter, also empty ones.
                if !value.is_empty() {
                    own.push((key, value));
                }
            } else if self.switches().any(|switch| switch == key) {
                if parse_switch(key, value)? {
                    own.push((key, value));
                }
            } else {
                let known = self.options().chain(self.switches());
                return Err(unknown_parameter(asked, key, known));
            }
        }
        if self.wants_regex && !own.iter().any(|(key, _)| *key == "regex") {
            let what = format!("{} needs a regex", self.name);
            return Err(ApiRefusal::new(400, what, "Add regex="));
        }
        Ok(own)
    }
}

/// Answers a command.
pub(crate) fn answer(
    library: &ProfileLibrary,
    asked: &ApiRequest,
    settings: &PageSettings,
    host: &dyn PageHost,
) -> Result<ApiAnswer, ApiRefusal> {
    let command = WEB_COMMANDS
        .iter()
        .find(|command| command.name == asked.path);
    let Some(command) = command else {
        let what = format!("There is no /{}", asked.path);
        return Err(ApiRefusal::new(
            404,
            what,
            "See /api/v1/commands for the list",
        ));
    };
    let own = command.own_parameters(asked)?;
    let mut names = library.parse_choice(asked)?.names;
    match command.about {
        ProfileScope::All => {}
        ProfileScope::One => names = names.split_off(names.len() - 1),
        ProfileScope::Two if names.len() == 2 => {}
        ProfileScope::Two => {
            let help = "Give them with base= and profile=";
            return Err(ApiRefusal::new(400, "diff compares two profiles", help));
        }
        ProfileScope::Nothing => names.clear(),
    }
    let values = ParameterValues::parse(&own, host)?;
    let question = (command.question)(values).map_err(|error| refusal(host, &error))?;
    if question.reads_binaries() && !settings.has_source {
        let what = "This server opens no binaries, and instructions are read from them";
        return Err(ApiRefusal::new(403, what, host.words().closed_binaries));
    }
    let sources = library.read_all(&names)?;
    let folders = &settings.source_folders;
    let files = match settings.has_source {
        true => SourceFiles::new(folders),
        false => SourceFiles::closed(folders, host.words().closed_sources),
    };
    let notes = RefCell::new(Vec::new());
    let note = |note: QuestionNote<'_>| notes.borrow_mut().push(host.note_text(&note));
    let mut answer = AnswerText::default();
    let answered = question.answer(
        &names,
        sources,
        &files,
        &settings.binaries,
        &note,
        &mut answer,
    );
    answered.map_err(|error| refusal(host, &error))?;
    Ok(ApiAnswer {
        media: match question {
            WebQuestion::Schema => "text/plain; charset=utf-8",
            _ => JSON_MEDIA_TYPE,
        },
        body: Some(answer.0),
        tag: None,
        notes: notes.into_inner(),
        ..ApiAnswer::default()
    })
}

/// Largest text of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The text of an answer, whose size is limited.
#[derive(Default)]
struct AnswerText(Vec<u8>);

impl Write for AnswerText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_ANSWER_BYTES {
            return Err(io::Error::other(format!(
                "the answer is larger than {} MiB; ask for fewer rows",
                MAX_ANSWER_BYTES >> 20
            )));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Describes all requests, for authors of client programs.
pub(crate) fn describe_api(takes_profiles: bool) -> serde_json::Value {
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
    use crate::host::tests::TestHost;

    fn asked(path: &str, parameters: &[(&str, &str)]) -> ApiRequest {
        let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        ApiRequest {
            path: path.to_string(),
            parameters: parameters.iter().map(owned).collect(),
            ..ApiRequest::default()
        }
    }

    /// Tests that every parameter in the description of the API is accepted, with any text as its
    /// value.
    #[test]
    fn every_parameter_is_understood() {
        for command in WEB_COMMANDS {
            let value = |option: &str| match option {
                "sort" => "cum",
                "granularity" if command.name == "list" => "functions",
                "granularity" => "lines",
                "limit" | "min_percent" => "3",
                "sample_type" => "inuse_objects",
                _ => "--output=/tmp/x",
            };
            let mut all: Vec<(&str, &str)> = command
                .options()
                .map(|option| (option, value(option)))
                .collect();
            // Some exclude each other, or have no effect on some commands.
            let others = ["all_code", "all_frames", "relative_percentages"];
            let switches = command.switches().filter(|switch| !others.contains(switch));
            all.extend(switches.map(|switch| (switch, "1")));
            if command.wants_regex {
                all.push(("regex", "--output=/tmp/x"));
            }
            let asked = asked(command.name, &all);
            let own = command.own_parameters(&asked).unwrap();
            let values = ParameterValues::parse(&own, &TestHost).unwrap();
            if let Err(error) = (command.question)(values) {
                panic!("{}: {error}", command.name);
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
            ("wide", "maybe", "is 1 or 0"),
        ] {
            let asked = asked("top", &[(key, value)]);
            let refused = top.own_parameters(&asked).unwrap_err();
            assert!(refused.what.contains(wanted), "{}", refused.what);
        }
    }
}
