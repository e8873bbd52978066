//! Writes reports to stdout (through a pager on a terminal) or to a file. A file appears only when
//! it is complete.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use heapprof_dropin::{CommandReader, LineCompleter, PromptStream};
use heapprof_files::{
    FileAccess, FileOwner, PathTrust, TypedPath, replace_file, resolve_typed, write_named,
};
use heapprof_prompt::{InterruptGuard, ScriptReader, TerminalReader, can_edit_lines};
use heapprof_recorder::inherited_state;

use crate::args::FileMode;

/// Whether output goes to a terminal: no file is given, and stdout is a terminal. Rows are then
/// limited, and colours are used.
pub(crate) fn is_terminal(file: Option<&Path>) -> bool {
    file.is_none() && io::stdout().is_terminal()
}

/// Writes the text of a report. On a terminal, a pager shows a text that is longer than the screen.
pub(crate) fn text(file: Option<&Path>, text: &str) -> Result<()> {
    if is_terminal(file) && show_in_pager(text)? {
        return Ok(());
    }
    write(file, |writer| Ok(writer.write_all(text.as_bytes())?))
}

/// Writes a report piece by piece as [`write()`] does. On a terminal, a pager shows a report that
/// is longer than the screen.
pub(crate) fn write_paged(
    file: Option<&Path>,
    body: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    if !is_terminal(file) {
        return write(file, body);
    }
    let mut shown = Vec::new();
    body(&mut shown)?;
    text(file, &String::from_utf8_lossy(&shown))
}

/// Writes a report, which `body` produces, to a file or to stdout. The umask decides which users
/// may read the file. The file gets its name only when it is complete.
pub(crate) fn write(
    file: Option<&Path>,
    body: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    write_for(FileAccess::Umask, file, body)
}

/// Writes a profile to a file or to stdout. A profile reveals what a program did, so other users
/// may read the file only if `mode` allows it.
pub(crate) fn profile(
    mode: FileMode,
    file: Option<&Path>,
    body: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    write_for(FileAccess::Exactly(mode.0), file, body)
}

/// Returns the source of the commands of a shell: the terminal, or else stdin.
pub(crate) fn command_reader(
    shell: &str,
    prompts: PromptStream,
    completer: Box<dyn LineCompleter>,
) -> Result<Box<dyn CommandReader>> {
    if can_edit_lines() {
        let hide = heapprof_sources::line_without_secrets;
        return Ok(Box::new(TerminalReader::new(shell, completer, hide)?));
    }
    let output: Box<dyn Write> = match prompts {
        PromptStream::Output => Box::new(io::stdout()),
        PromptStream::Messages => Box::new(io::stderr()),
    };
    Ok(Box::new(ScriptReader::new(io::stdin(), output)))
}

/// Prints a command's help, or the version.
pub(crate) fn help(help: &clap::Error) -> Result<()> {
    if !inherited_state::has_stdout() {
        bail!(STDOUT_CLOSED);
    }
    let printed = help.print().and_then(|()| io::stdout().flush());
    printed.context("standard output: cannot be written")
}

/// The error if heapprof was started without a standard output.
const STDOUT_CLOSED: &str = "standard output is closed: there is nowhere to write to";

fn write_for(
    access: FileAccess,
    file: Option<&Path>,
    body: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let Some(path) = file else {
        if !inherited_state::has_stdout() {
            bail!(STDOUT_CLOSED);
        }
        return write_named("standard output", io::stdout().lock(), body);
    };
    let shown = path.display().to_string();
    match resolve_typed(path, PathTrust::Any)? {
        TypedPath::Open(file) => write_named(&shown, file, body),
        TypedPath::Place(place, found) => {
            // A report that replaces a file keeps the file's mode, unless the old file is another
            // user's.
            let kept = found
                .filter(|found| access == FileAccess::Umask && FileOwner::from_stat(found).is_us());
            let access = kept.map_or(access, |found| FileAccess::Exactly(found.st_mode & 0o777));
            replace_file(&place, &shown, access, body)
        }
    }
}

/// Opens a file that is written bit by bit during the work: a new file with the mode `mode`, or an
/// existing pipe or device.
pub(crate) fn open(mode: FileMode, path: &Path) -> Result<File> {
    let named = || format!("{}: cannot be written", path.display());
    match resolve_typed(path, PathTrust::Any)? {
        TypedPath::Open(file) => Ok(file),
        TypedPath::Place(place, _) => {
            let mut draft = place
                .draft(FileAccess::Exactly(mode.0))
                .with_context(named)?;
            let file = draft.file().try_clone().with_context(named)?;
            draft.finish().with_context(named)?;
            Ok(file)
        }
    }
}

/// Fails if a file certainly can't be written. Writing may still fail later for other reasons.
pub(crate) fn must_be_writable(path: &Path) -> Result<()> {
    // A reader that waits at a pipe must not see it opened and closed.
    match path.exists() && !path.is_file() {
        true => Ok(()),
        false => Ok(resolve_typed(path, PathTrust::Any).map(drop)?),
    }
}

/// Shows `text` in a pager if it is longer than the screen. Returns false if it is not longer, or
/// if no pager can be started.
fn show_in_pager(text: &str) -> Result<bool> {
    let rows = console_rows();
    if text.lines().count() < rows {
        return Ok(false);
    }
    let command = ["HEAPPROF_PAGER", "PAGER"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok())
        .unwrap_or_else(|| "less".to_string());
    let mut words = command.split_whitespace();
    let Some(program) = words.next().filter(|p| *p != "cat") else {
        return Ok(false);
    };
    let mut pager = Command::new(program);
    pager.args(words).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // These options quit if the text fits, keep colours, leave the text on the screen and do
        // not wrap, as git's do.
        pager.env("LESS", "FRXS");
    }
    // Ctrl-C is for the pager, which needs the terminal until it ends.
    let _guard = InterruptGuard::new();
    let Ok(mut child) = pager.spawn() else {
        return Ok(false);
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A user who quits the pager early has seen enough.
        match stdin.write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
    }
    child.wait()?;
    Ok(true)
}

/// Largest width of a line, even if the terminal is wider.
const MAX_COLUMNS: usize = 1_000;

/// Returns the width of reports on a terminal, in columns.
pub(crate) fn console_columns() -> usize {
    terminal_size::terminal_size()
        .map_or(80, |(columns, _)| usize::from(columns.0).min(MAX_COLUMNS))
}

fn console_rows() -> usize {
    terminal_size::terminal_size().map_or(24, |(_, rows)| usize::from(rows.0))
}

/// Whether an error means that the output has no reader any more.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
