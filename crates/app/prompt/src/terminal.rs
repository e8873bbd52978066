//! Lines that a person edits at a terminal, with completion and a history.

use std::borrow::Cow;
use std::io::IsTerminal;

use anyhow::{Context as _, Result};
use heapprof_dropin::{CommandReader, LineCompleter};
use heapprof_text::printable;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Behavior, CompletionType, Config, Context, Editor, Helper};

use crate::history::{HistoryFile, MAX_LINES};
use crate::interrupts::InterruptGuard;

/// Whether a person types at a terminal on which lines can be edited.
pub fn can_edit_lines() -> bool {
    let terminal = std::env::var("TERM").unwrap_or_default().to_lowercase();
    std::io::stdin().is_terminal() && !matches!(terminal.as_str(), "" | "dumb")
}

/// Reader of the lines that a person types. While it lives, Ctrl-C does not end the shell.
pub struct TerminalReader {
    editor: Editor<CompletionHelper, MemHistory>,
    history: Option<HistoryFile>,
    hide_secrets: fn(&str) -> String,
    _guard: InterruptGuard,
}

impl TerminalReader {
    /// Makes a reader for the shell `shell`, whose history has that name. `hide_secrets` returns a
    /// line as it is kept there.
    ///
    /// # Errors
    /// The terminal can't be used.
    pub fn new(
        shell: &str,
        completer: Box<dyn LineCompleter>,
        hide_secrets: fn(&str) -> String,
    ) -> Result<Self> {
        let config = Config::builder()
            .max_history_size(MAX_LINES)
            .and_then(|builder| builder.history_ignore_dups(true))
            .context("the terminal can't be used")?
            .completion_type(CompletionType::List)
            // The report may go to a file or a pipe; the dialogue stays on the terminal.
            .behavior(Behavior::PreferTerm)
            .build();
        let history = MemHistory::with_config(&config);
        let mut editor =
            Editor::with_history(config, history).context("the terminal can't be used")?;
        editor.set_helper(Some(CompletionHelper(completer)));
        let history = HistoryFile::of_shell(shell);
        for line in history.iter().flat_map(HistoryFile::read) {
            // A line that is not added is only missing in the history.
            let _ = editor.add_history_entry(line);
        }
        Ok(Self {
            editor,
            history,
            hide_secrets,
            _guard: InterruptGuard::new(),
        })
    }

    fn remember(&mut self, line: &str) {
        if !matches!(self.editor.add_history_entry(line), Ok(true)) {
            return;
        }
        if let Some(history) = &self.history {
            // Without a history, the shell works all the same.
            let _ = history.add(&(self.hide_secrets)(line));
        }
    }
}

impl CommandReader for TerminalReader {
    fn read_line(&mut self, prompt: &str) -> Result<Option<String>> {
        match self.editor.readline(prompt) {
            Ok(line) => {
                if !line.trim().is_empty() {
                    self.remember(&line);
                }
                Ok(Some(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => Err(error).context("the terminal can't be read"),
        }
    }
}

/// The completion of a shell, as the line editor asks for it.
struct CompletionHelper(Box<dyn LineCompleter>);

impl Completer for CompletionHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let (start, mut words) = self.0.complete(line.get(..cursor).unwrap_or_default());
        // The line editor writes words as they are, and a name in a profile may control a terminal.
        words.retain(|word| matches!(printable(word), Cow::Borrowed(_)));
        Ok((start, words))
    }
}

impl Hinter for CompletionHelper {
    type Hint = String;
}

impl Highlighter for CompletionHelper {}
impl Validator for CompletionHelper {}
impl Helper for CompletionHelper {}
