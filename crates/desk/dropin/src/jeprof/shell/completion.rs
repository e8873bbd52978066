//! Completes the commands of the shell.

use crate::host::LineCompleter;

/// The commands of the shell.
const COMMANDS: [&str; 11] = [
    "callgrind",
    "disasm",
    "evince",
    "gv",
    "help",
    "list",
    "quit",
    "text",
    "top",
    "web",
    "weblist",
];

/// Completer of the first word of a line.
pub(super) struct ShellCompleter;

impl LineCompleter for ShellCompleter {
    fn complete(&self, line: &str) -> (usize, Vec<String>) {
        let word = line.trim_start();
        let known = COMMANDS.iter().filter(|command| command.starts_with(word));
        (
            line.len() - word.len(),
            known.map(ToString::to_string).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_completed() {
        let found = |line| ShellCompleter.complete(line);
        assert_eq!(
            found(" we"),
            (1, vec!["web".to_string(), "weblist".to_string()])
        );
        assert_eq!(found("top x"), (0, Vec::new()));
    }
}
