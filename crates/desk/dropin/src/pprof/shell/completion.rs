//! Completes what a person types at the prompt: commands, options and their values, functions.

use heapprof_text::{name_pattern, pattern_name};

use super::command_table::ReportCommand;
use super::settings::ShellOption;
use crate::host::LineCompleter;

/// Commands that print no report.
pub(super) const OTHER_COMMANDS: [&str; 5] = ["exit", "help", "options", "quit", "o"];

/// Completer of the lines of the shell.
pub(super) struct ShellCompleter {
    /// Names of the profile's functions, sorted, each once.
    pub(super) functions: Vec<String>,
    /// Names of the profile's sample types.
    pub(super) sample_types: Vec<String>,
}

impl LineCompleter for ShellCompleter {
    fn complete(&self, line: &str) -> (usize, Vec<String>) {
        let start = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = &line[start..];
        let before: Vec<&str> = line[..start].split_whitespace().collect();
        match before[..] {
            [] => match word.split_once('=') {
                Some((name, value)) => {
                    let value_start = start + name.len() + 1;
                    (value_start, self.option_values(name, value))
                }
                None => (start, self.first_words(word)),
            },
            ["help"] => (start, help_topics(word)),
            [command, ..] => {
                let digits = |c: char| c.is_ascii_digit();
                let command = ReportCommand::find(command.trim_end_matches(digits));
                if !command.is_some_and(ReportCommand::names_functions) {
                    return (start, Vec::new());
                }
                let sign = usize::from(word.starts_with('-'));
                (start + sign, self.functions_with(&word[sign..]))
            }
        }
    }
}

impl ShellCompleter {
    fn first_words(&self, word: &str) -> Vec<String> {
        let mut words = help_topics(word);
        let other = OTHER_COMMANDS.iter().map(ToString::to_string);
        let types = self.sample_types.iter().flat_map(|name| {
            [
                name.clone(),
                format!("total_{name}"),
                format!("mean_{name}"),
            ]
        });
        words.extend(other.chain(types).filter(|name| name.starts_with(word)));
        words.sort_unstable();
        words.dedup();
        words
    }

    fn option_values(&self, option: &str, value: &str) -> Vec<String> {
        let Some(option) = ShellOption::find(option) else {
            return Vec::new();
        };
        let mut values: Vec<String> = match option.name() {
            "sample_index" => self.sample_types.clone(),
            "focus" | "ignore" | "hide" | "show" | "show_from" | "prune_from" => {
                return self.functions_with(value);
            }
            _ if option.stands_alone() => vec!["true".to_string(), "false".to_string()],
            _ => option.choices().iter().map(ToString::to_string).collect(),
        };
        values.retain(|known| known.starts_with(value));
        values
    }

    /// Returns all functions that begin with `word`, as regular expressions; if none does, those
    /// that contain it. The line editor completes their common beginning, and asks before it lists
    /// many.
    fn functions_with(&self, word: &str) -> Vec<String> {
        let word = pattern_name(word);
        let list = |matches: &dyn Fn(&String) -> bool| -> Vec<String> {
            let found = self.functions.iter().filter(|name| matches(name));
            found.map(|name| name_pattern(name)).collect()
        };
        let begin = list(&|name| name.starts_with(&word));
        match begin.is_empty() {
            true => list(&|name| name.contains(&word)),
            false => begin,
        }
    }
}

/// Returns the commands and options with help that begin with `word`.
fn help_topics(word: &str) -> Vec<String> {
    let commands = ReportCommand::all().map(|command| command.name);
    let options = ShellOption::all().map(ShellOption::name);
    let topics = commands
        .chain(options)
        .filter(|name| name.starts_with(word));
    topics.map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_gets_what_fits_there() {
        let completer = ShellCompleter {
            functions: [
                "main.(*tree).add",
                "main.put",
                "main.walk",
                "new int",
                "strings.put",
            ]
            .map(str::to_string)
            .to_vec(),
            sample_types: vec!["inuse_space".to_string()],
        };
        for (line, start, words) in [
            ("to", 0, "top topproto total_inuse_space"),
            ("opt", 0, "options"),
            ("gran", 0, "granularity"),
            ("granularity=f", 12, "filefunctions files functions"),
            ("sample_index=", 13, "inuse_space"),
            ("trim=", 5, "true false"),
            ("focus=put", 6, "main.put strings.put"),
            ("help wei", 5, ""),
            ("help web", 5, "web weblist"),
            ("top10 main.w", 6, "main.walk"),
            ("list main.(", 5, "main.\\(\\*tree\\).add"),
            ("list main.\\(\\*t", 5, "main.\\(\\*tree\\).add"),
            ("hide=new", 5, "new\\sint"),
            ("top 5 -walk", 7, "main.walk"),
            ("tags main", 5, ""),
            ("nosuch main", 7, ""),
        ] {
            let (at, found) = completer.complete(line);
            assert_eq!((at, found.join(" ").as_str()), (start, words), "{line}");
        }
    }

    #[test]
    fn the_common_beginning_is_that_of_all_functions() {
        let alphas = (0..250).map(|n| format!("pkg.alpha{n:03}"));
        let functions: Vec<String> = alphas.chain(["pkg.beta".to_string()]).collect();
        let completer = ShellCompleter {
            functions: functions.clone(),
            sample_types: Vec::new(),
        };
        assert_eq!(completer.complete("list pkg."), (5, functions));
    }
}
