//! Asks the user a question at the terminal.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Read, Write, stderr, stdin};

/// Maximum number of bytes of an answer.
const MAX_ANSWER_BYTES: usize = 256;

/// Shows a question, and returns the line that the user types; `None` if there is no terminal.
#[must_use]
pub fn ask_line(question: &str) -> Option<String> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return None;
    }
    // Standard input stays whole: a terminal gives one line at a time.
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty");
    let mut terminal = terminal.ok()?;
    terminal.write_all(question.as_bytes()).ok()?;
    let mut answer = [0; MAX_ANSWER_BYTES];
    let len = terminal.read(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer[..len]).trim().to_string())
}
