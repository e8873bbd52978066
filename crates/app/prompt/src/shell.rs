//! The loop of a shell: reads lines, runs each as a command in a process of its own, and completes
//! what the person types.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt;
use std::rc::Rc;

use anyhow::{Context, Error, Result, anyhow};
use heapprof_dropin::{CommandProcess, CommandReader, LineCompleter};
use heapprof_text::{name_pattern, pattern_name};

use crate::command_process::run_in_copy;
use crate::paths::paths_with;
use crate::terminal::can_edit_lines;
use crate::words::{as_word, split_line, unfinished_word};

/// Words that end the shell.
const LAST_WORDS: [&str; 3] = ["quit", "exit", "q"];
/// The word that reads the source again.
const RELOAD: &str = "reload";
/// Exit code of a command that can't be carried out.
const FAILURE: u8 = 2;
/// Exit code of a command that Ctrl-C ended, as in other shells.
pub const INTERRUPTED: u8 = 130;

/// The commands of a shell.
pub trait ShellCommands {
    /// Runs the command that the words mean, and returns its exit code.
    fn run(&self, words: Vec<String>) -> u8;

    /// Reads the source of the commands again.
    ///
    /// # Errors
    /// The source can't be read.
    fn reload(&mut self) -> Result<()>;

    /// Prints why a line or a command failed.
    fn print_error(&self, error: &Error);
}

/// Runs the lines of a shell until they end, and returns the exit code of the last command. Ctrl-C
/// ends a command, and on a pipe also the shell.
///
/// # Errors
/// The lines can't be read.
pub fn run_shell(
    prompt: &str,
    reader: &mut dyn CommandReader,
    commands: &mut dyn ShellCommands,
) -> Result<u8> {
    let mut last = 0;
    while let Some(line) = reader.read_line(prompt)? {
        let words = split_line(&line);
        let done = match words.as_deref().map(<[String]>::first) {
            Ok(None) => continue,
            Ok(Some(word)) if LAST_WORDS.contains(&word.as_str()) => break,
            Ok(Some(word)) if word == RELOAD => commands.reload().map(|()| 0),
            _ => words.and_then(|words| exit_code_of_copy(|_| commands.run(words))),
        };
        last = done.unwrap_or_else(|error| {
            commands.print_error(&error);
            FAILURE
        });
        if last == INTERRUPTED && !can_edit_lines() {
            break;
        }
    }
    Ok(last)
}

/// Runs a command in a copy of this process if that is possible, and returns its exit code.
/// [`INTERRUPTED`] means that Ctrl-C ended it.
///
/// # Errors
/// The command can't be started, or a signal ended it.
pub fn exit_code_of_copy(command: impl FnOnce(CommandProcess) -> u8) -> Result<u8> {
    let ended = run_in_copy(command).context("the command can't be started")?;
    match (ended.code(), ended.signal()) {
        (Some(code), _) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(libc::SIGINT)) => Ok(INTERRUPTED),
        (None, signal) => Err(anyhow!(
            "the command was ended by signal {}",
            signal.unwrap_or_default()
        )),
    }
}

/// The words that a command may begin with, and what may follow each.
#[derive(Clone, Debug, Default)]
pub struct CommandWords {
    /// The command; empty for the shell itself.
    pub name: String,
    /// The parts of the command.
    pub parts: Vec<Self>,
    /// The options, with their dashes.
    pub options: Vec<String>,
}

impl CommandWords {
    fn part(&self, name: &str) -> Option<&Self> {
        self.parts.iter().find(|part| part.name == name)
    }
}

/// Completer of a shell whose commands are words, options, functions and files.
pub struct WordCompleter {
    /// The commands of the shell.
    pub commands: CommandWords,
    /// Names of functions, sorted. The shell may change them when it reads its source again.
    pub functions: Rc<RefCell<Vec<String>>>,
}

impl LineCompleter for WordCompleter {
    fn complete(&self, line: &str) -> (usize, Vec<String>) {
        let (start, word) = unfinished_word(line);
        let (before, word) = (line.get(..start).unwrap_or_default(), word.as_str());
        let mut command = &self.commands;
        let mut is_start = true;
        for typed in before.split_whitespace() {
            is_start = false;
            match command.part(typed) {
                Some(part) => command = part,
                None => break,
            }
        }
        let begins = |name: &str| name.starts_with(word);
        let own: &[&str] = match is_start {
            true => &[LAST_WORDS[0], LAST_WORDS[1], RELOAD],
            false => &[],
        };
        let parts = command.parts.iter().map(|part| part.name.as_str());
        let parts = parts.chain(own.iter().copied()).filter(|name| begins(name));
        let mut found: Vec<String> = parts.map(str::to_string).collect();
        if is_start || !found.is_empty() && !word.is_empty() {
            found.sort_unstable();
            return (start, found);
        }
        if word.starts_with('-') {
            let both = command.options.iter().chain(&self.commands.options);
            found.extend(both.filter(|option| begins(option)).cloned());
        } else {
            let paths = paths_with(word);
            found.extend(paths.iter().map(|path| as_word(path)));
            let typed = pattern_name(word);
            let functions = self.functions.borrow();
            let functions = functions.iter().filter(|name| name.contains(&typed));
            found.extend(functions.map(|name| as_word(&name_pattern(name))));
        }
        found.sort_unstable();
        found.dedup();
        (start, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScriptReader;

    /// Commands that end with the number that is typed, or by a signal.
    #[derive(Default)]
    struct NumberCommands {
        reloads: usize,
        errors: std::cell::RefCell<Vec<String>>,
    }

    impl ShellCommands for NumberCommands {
        fn run(&self, words: Vec<String>) -> u8 {
            words[0].parse().unwrap_or(77)
        }

        fn reload(&mut self) -> Result<()> {
            self.reloads += 1;
            Ok(())
        }

        fn print_error(&self, error: &Error) {
            self.errors.borrow_mut().push(error.to_string());
        }
    }

    #[test]
    fn the_last_command_decides() {
        for (script, code, errors) in [
            ("3\n\n", 3, ""),
            ("3\nreload\n", 0, ""),
            ("5\nquit\n3\n", 5, ""),
            ("list 'x\n", FAILURE, "a quote in the line has no end"),
        ] {
            let mut commands = NumberCommands::default();
            let mut reader = ScriptReader::new(script.as_bytes(), Vec::new());
            let last = run_shell("> ", &mut reader, &mut commands).unwrap();
            assert_eq!(last, code, "{script}");
            assert_eq!(commands.errors.borrow().join("; "), errors, "{script}");
            assert_eq!(commands.reloads, usize::from(script.contains("reload")));
        }
    }

    #[test]
    fn words_are_completed() {
        let named = |name: &str, options: &[&str], parts: &[CommandWords]| CommandWords {
            name: name.to_string(),
            parts: parts.to_vec(),
            options: options.iter().map(ToString::to_string).collect(),
        };
        let peek = named("peek", &["--focus"], &[]);
        let tree = named("tree", &["--focus", "--full"], &[peek]);
        let functions = ["main.(*tree).add", "main.put", "main.walk", "new int"];
        let completer = WordCompleter {
            commands: named("", &["--db"], &[tree, named("top", &[], &[])]),
            functions: Rc::new(RefCell::new(functions.map(str::to_string).to_vec())),
        };
        for (line, start, words) in [
            ("t", 0, "top tree"),
            ("re", 0, "reload"),
            ("tree p", 5, "peek"),
            ("tree --f", 5, "--focus --full"),
            ("tree peek --", 10, "--db --focus"),
            ("tree peek walk", 10, "main.walk"),
            ("tree peek main.(", 10, r"main.\\(\\*tree\\).add"),
            ("tree peek 'main.\\(", 10, r"main.\\(\\*tree\\).add"),
            (r"tree peek main.\\(\\*", 10, r"main.\\(\\*tree\\).add"),
            ("tree peek new", 10, r"new\\sint"),
        ] {
            let (at, found) = completer.complete(line);
            assert_eq!((at, found.join(" ").as_str()), (start, words), "{line}");
        }
    }

    #[test]
    fn the_common_beginning_is_that_of_all_functions() {
        let alphas = (0..250).map(|n| format!("pkg.alpha{n:03}"));
        let functions: Vec<String> = alphas.chain(["pkg.beta".to_string()]).collect();
        let completer = WordCompleter {
            commands: CommandWords::default(),
            functions: Rc::new(RefCell::new(functions.clone())),
        };
        assert_eq!(completer.complete("list pkg."), (5, functions));
    }
}
