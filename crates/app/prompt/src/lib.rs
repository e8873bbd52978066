//! The prompt of heapprof's shells: reads the lines that a person types at a terminal, or the lines
//! of a script on a pipe.
//!
//! [`TerminalReader`] edits lines, completes words and keeps a history. [`ScriptReader`] prints the
//! same prompts and reads lines as they are. [`run_shell`] is the loop of a shell whose
//! commands run in processes of their own.
//!
//! This crate knows the words that every shell has (`quit`, `reload`, `> FILE`). It must never know
//! what the commands mean.

// The rules are for programs. Tests write where nobody else does.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod command_process;
mod history;
mod interrupts;
mod paths;
mod script_reader;
mod shell;
mod terminal;
mod terminal_settings;
mod words;

pub use interrupts::InterruptGuard;
pub use script_reader::ScriptReader;
pub use shell::{
    CommandWords, INTERRUPTED, ShellCommands, WordCompleter, exit_code_of_copy, run_shell,
};
pub use terminal::{TerminalReader, can_edit_lines};
