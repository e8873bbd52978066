//! What the command line shows of itself: the first commands of `-h`, the groups of `--help`, and
//! the old names, which go on working and are not shown.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, FromArgMatches};

use super::Cli;

/// The commands that `heapprof -h` shows.
const FIRST_COMMANDS: [&str; 12] = [
    "why", "record", "attach", "top", "tree", "diff", "leaks", "growth", "flame", "report", "web",
    "heap",
];

/// The groups of commands that `heapprof --help` shows, in the order of a user's questions.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Look",
        &[
            "why", "top", "tree", "list", "leaks", "flame", "report", "web", "tui", "shell",
            "info", "sql",
        ],
    ),
    ("Record", &["record", "attach", "dump", "fork-audit"]),
    ("Compare", &["diff", "growth", "bench"]),
    ("Processes", &["proc", "heap", "watch", "alive"]),
    ("Store", &["db"]),
    ("Files", &["convert", "pprof"]),
    ("Setup", &["setup", "help"]),
];

/// Names that commands had before, and the words that stand for them now. The old names still work.
const OLD_NAMES: [(&str, &str); 28] = [
    ("load", "db load"),
    ("ls", "db ls"),
    ("series", "db series"),
    ("prune", "db prune"),
    ("rm", "db rm"),
    ("export", "db export"),
    ("import", "db import"),
    ("schema", "db schema"),
    ("preload-path", "setup preload-path"),
    ("perl-install", "setup perl-install"),
    ("completions", "setup completions"),
    ("man", "setup man"),
    ("detach", "attach --stop"),
    ("ps", "proc --recorded"),
    ("listen", "alive listen"),
    ("wiretap", "alive wiretap"),
    ("stats", "info stats"),
    ("tags", "info tags"),
    ("peek", "tree peek"),
    ("traces", "tree traces"),
    ("timeline", "growth timeline"),
    ("follow", "growth follow"),
    ("merge", "convert merge"),
    ("symbolize", "convert symbolize"),
    ("compare-allocators", "bench allocators"),
    ("mark", "watch mark"),
    ("heapwalk", "heap blocks"),
    ("perl-heap", "heap values"),
];

/// Commands that are not shown, because another command does the same and more.
const HIDDEN_COMMANDS: [&str; 3] = ["live", "jeprof", "google-pprof"];

/// Commands that show all code, unless the user asks for own code.
const ALL_CODE_COMMANDS: [&str; 5] = [
    "tree peek",
    "list",
    "tree traces",
    "info tags",
    "info stats",
];

/// Returns the definition of the command line, without its own help text.
pub(crate) fn cli_command() -> Command {
    let mut command = Cli::command();
    for name in HIDDEN_COMMANDS {
        command = command.mut_subcommand(name, |hidden| hidden.hide(true));
    }
    for name in ALL_CODE_COMMANDS {
        command = match name.split_once(' ') {
            Some((group, part)) => {
                command.mut_subcommand(group, |group| group.mut_subcommand(part, showing_all_code))
            }
            None => command.mut_subcommand(name, showing_all_code),
        };
    }
    command
}

/// Returns a command that shows all code, unless the user asks for own code.
fn showing_all_code(command: Command) -> Command {
    let own_help = "Attribute the memory of libraries to the program's own code";
    command
        .mut_arg("all_code", |option| option.hide(true))
        .mut_arg("own_code", |option| {
            option.help(own_help).hide_short_help(false)
        })
}

/// Returns the definition of the command line without hidden commands, for completions.
pub(crate) fn visible_command() -> Command {
    let all = cli_command();
    let visible = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    Command::new("heapprof")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(visible.cloned())
}

/// Returns the present words for a command.
pub(crate) fn current_name(name: &str) -> &str {
    let old = OLD_NAMES.iter().find(|(old, _)| *old == name);
    old.map_or(name, |(_, new)| new)
}

/// Returns the names that commands had before.
pub(crate) fn old_names() -> [&'static str; OLD_NAMES.len()] {
    OLD_NAMES.map(|(old, _)| old)
}

/// Whether a word is a command, or was one before.
pub(crate) fn is_command(word: &str) -> bool {
    old_names().contains(&word) || cli_command().find_subcommand(word).is_some()
}

/// Parses a command line, whose first word is the program. Old names of commands are understood.
///
/// # Errors
/// The error may also be a help text, which the user asked for.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    parse_present(words).or_else(|error| match with_present_names(words, &error) {
        Some(words) => parse_present(&words),
        None => Err(error),
    })
}

/// Returns a command line with the present words for an old name that caused an error; `None` if
/// the error has another cause.
fn with_present_names(words: &[OsString], error: &clap::Error) -> Option<Vec<OsString>> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (_, present) = OLD_NAMES.iter().find(|(old, _)| old == typed)?;
    let at = command_position(words)?;
    let is_help = words[at] == "help";
    let at = if is_help { at + 1 } else { at };
    // What is an unknown part of another command is no old name.
    if words.get(at)? != typed.as_str() {
        return None;
    }
    let present = present.split(' ');
    // Help is about commands, and not about their options.
    let present = present.filter(|word| !is_help || !word.starts_with('-'));
    let mut words = words.to_vec();
    words.splice(at..=at, present.map(OsString::from));
    Some(words)
}

/// Returns the position of the command in a command line: behind the program, the options of all
/// commands, and their values.
fn command_position(words: &[OsString]) -> Option<usize> {
    let command = cli_command();
    let takes_value = |word: &str| {
        let mut options = command.get_arguments();
        let option = options.find(|of| of.get_long() == word.strip_prefix("--"));
        option.is_some_and(|option| option.get_action().takes_values())
    };
    let mut at = 1;
    loop {
        let word = words.get(at)?.to_string_lossy();
        at += match word.starts_with('-') {
            true if takes_value(&word) => 2,
            true => 1,
            false => return Some(at),
        };
    }
}

/// Parses a command line with the present names of commands.
fn parse_present(words: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = cli_command();
    let asks = |start: &str| words.iter().any(|w| w.to_string_lossy().starts_with(start));
    // Only a command line that asks for help needs its text.
    if words.len() < 2 || words.iter().any(|word| word == "-h") {
        let help = first_commands(&command);
        command = command.override_help(help);
    } else if asks("-h") || asks("--h") || asks("help") {
        let help = all_commands(&command);
        command = command.override_help(help);
    }
    let matches = command.try_get_matches_from_mut(words)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok(Cli {
        command: cli.command.ungrouped(),
        ..cli
    })
}

/// Returns a line for a command: its name and what it does.
fn line(command: &Command, name: &str) -> String {
    const NAME_COLUMNS: usize = 20;
    let about = command.find_subcommand(name).and_then(Command::get_about);
    let about = match name {
        "help" => "Help on a command; help options: the common options".to_string(),
        _ => about.map(ToString::to_string).unwrap_or_default(),
    };
    let line = format!("  {name:NAME_COLUMNS$}{about}");
    format!("{line}\n")
}

/// Returns the text of `heapprof -h`.
fn first_commands(command: &Command) -> String {
    let commands: String = FIRST_COMMANDS
        .iter()
        .map(|name| line(command, name))
        .collect();
    format!(
        "{}\n\nUsage: heapprof COMMAND [OPTIONS] [PROFILE...]\n\n{commands}\n\
         heapprof record -- ./server    record a program; then heapprof top\n\
         heapprof FILE                  the functions of a profile of any tool\n\n\
         heapprof --help shows all commands; heapprof COMMAND -h shows its options.\n",
        about(command)
    )
}

/// Returns the text of `heapprof --help`.
fn all_commands(command: &Command) -> String {
    let group = |(heading, names): &(&str, &[&str])| {
        let lines: String = names.iter().map(|name| line(command, name)).collect();
        format!("{heading}:\n{lines}")
    };
    let groups: String = GROUPS.iter().map(group).collect();
    format!(
        "{}\nUsage: heapprof COMMAND [OPTIONS] [PROFILE...]\n{groups}\
         heapprof COMMAND --help: its options; heapprof help options: the common options.\n",
        about(command)
    )
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// Returns the text of `heapprof help options`: what a PROFILE is, and the options that all
/// commands have.
pub(crate) fn shared_options() -> String {
    let command = cli_command();
    let after = command.get_after_help().map(ToString::to_string);
    let shared: Vec<clap::Arg> = command
        .get_arguments()
        .filter(|option| option.is_global_set())
        .cloned()
        .collect();
    let mut page = Command::new("heapprof")
        .disable_help_flag(true)
        .max_term_width(100)
        .help_template("{before-help}{all-args}")
        .before_long_help(after.unwrap_or_default())
        .args(shared);
    page.render_long_help().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_shown_in_one_group() {
        let command = cli_command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.1).copied().collect();
        grouped.retain(|name| *name != "help");
        let mut visible: Vec<&str> = command
            .get_subcommands()
            .filter(|one| !one.is_hide_set())
            .map(Command::get_name)
            .collect();
        grouped.sort_unstable();
        visible.sort_unstable();
        assert_eq!(grouped, visible);
        assert!(FIRST_COMMANDS.iter().all(|name| visible.contains(name)));
        for (old, new) in OLD_NAMES {
            assert!(command.find_subcommand(old).is_none(), "{old}");
            let mut words = new.split(' ').take_while(|word| !word.starts_with('-'));
            let found = words.try_fold(&command, |found, word| found.find_subcommand(word));
            assert!(found.is_some(), "{new}");
        }
    }

    #[test]
    fn help_fits_a_screen() {
        let command = cli_command();
        for (text, most) in [(first_commands(&command), 24), (all_commands(&command), 50)] {
            assert!(text.lines().count() <= most, "{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
