//! The prompt of heapprof's shells: reads the lines that a person types at a terminal, or the lines
//! of a script on a pipe.
//!
//! [`TerminalReader`] edits lines, completes words and keeps a history. [`PipedReader`] prints the
//! same prompts and reads lines as they are. [`run_shell`] is the loop of a shell whose
//! commands run in processes of their own.
//!
//! This crate must never know what the lines mean.

// The rules are for programs. Tests write where nobody else does.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod apart;
mod history;
mod interrupts;
mod paths;
mod piped;
mod shell;
mod terminal;
mod terminal_settings;
mod words;

pub use interrupts::InterruptGuard;
pub use piped::PipedReader;
pub use shell::{
    CommandWords, INTERRUPTED, ShellCommands, WordCompleter, exit_code_apart, run_shell,
};
pub use terminal::{TerminalReader, can_edit_lines};
