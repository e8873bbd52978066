//! What the command line shows of itself: the first commands of `-h`, the groups of `--help`, and
//! the old names, which go on working and are not shown.

use std::ffi::OsString;

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
            "why", "top", "tree", "list", "leaks", "flame", "report", "web", "tui", "info", "sql",
        ],
    ),
    ("Record", &["record", "attach", "dump", "fork-audit"]),
    ("Compare", &["diff", "growth", "bench"]),
    ("Processes", &["proc", "heap", "watch", "alive"]),
    ("Store", &["db"]),
    ("Files", &["convert", "pprof"]),
    ("Setup", &["setup", "help"]),
];

/// Names that commands had before, and what they are called now. The old names go on working.
const OLD_NAMES: [(&str, &str); 29] = [
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
    ("live", "tui"),
];

/// Commands that show all code, unless the user asks for own code.
const ALL_CODE_COMMANDS: [&str; 5] = ["peek", "list", "traces", "tags", "stats"];

/// Returns the definition of the command line, without its own help text.
pub(crate) fn cli_command() -> Command {
    let mut command = Cli::command();
    for name in OLD_NAMES.map(|(old, _)| old).into_iter().chain(["jeprof"]) {
        command = command.mut_subcommand(name, |old| old.hide(true));
    }
    for name in ALL_CODE_COMMANDS {
        command = command.mut_subcommand(name, showing_all_code);
        // The command's present name may be a part of another command.
        if let Some((group, part)) = current_name(name).split_once(' ') {
            command = command.mut_subcommand(group, |command| {
                command.mut_subcommand(part, showing_all_code)
            });
        }
    }
    command
}

/// Returns a command that shows all code, unless the user asks for own code.
fn showing_all_code(command: Command) -> Command {
    let own_help = "Count the memory of libraries for the program's own code";
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

/// Parses a command line, whose first word is the program.
///
/// # Errors
/// The error may also be a help text, which the user asked for.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
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
        "help" => "The help of a command; of options: what all commands have".to_string(),
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
         heapprof --help shows all commands, and heapprof COMMAND -h the options of one.\n",
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
         heapprof COMMAND --help shows its options; heapprof help options those of all.\n",
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
            assert!(command.find_subcommand(old).is_some(), "{old}");
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
