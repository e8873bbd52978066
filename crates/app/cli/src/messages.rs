//! The messages that heapprof prints on stderr, one line each. On a terminal, a long line is folded
//! between words. No other module prints messages.
//! Reports and data go to stdout or to files, but a report goes to stderr if a program's output is
//! on stdout.
#![allow(clippy::print_stderr)]

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use clap::error::{ContextKind, ErrorKind};
use heapprof_analysis::{AnalysisError, TotalsError};
use heapprof_bench::RunError;
use heapprof_page::QuestionError;
use heapprof_report::ReportError;
use heapprof_stores::StoreError;
use heapprof_text::{MismatchReason, fold_words, printable, printable_lines};

use crate::{name, output, suggestion};

/// Prints an error: `heapprof: FILE: what, where; what to do`.
pub(crate) fn error(error: &anyhow::Error) {
    say(&text(error));
}

/// Returns the text of an error, in one line, with advice on what to do about it.
pub(crate) fn text(error: &anyhow::Error) -> String {
    let option = error.downcast_ref().map_or("", option);
    let advice = error.chain().find_map(advice).unwrap_or_default();
    let causes: Vec<String> = error.chain().map(cause_text).collect();
    format!("{option}{}{advice}", causes.join(": "))
}

/// Returns the text of one cause of an error. The error of a library names only a wrong value. For
/// such an error, the text also names the command-line option that the value came from.
fn cause_text(cause: &(dyn std::error::Error + 'static)) -> String {
    if let Some(TotalsError::Filter { filter, text, why }) = totals_error(cause) {
        return format!("--{filter} {text:?}: {why}");
    }
    match cause.downcast_ref() {
        Some(ReportError::Unit { unit, why }) => format!("--unit {unit:?}: {why}"),
        _ => match cause.downcast_ref() {
            Some(error) => question_error_text(error),
            None => cause.to_string(),
        },
    }
}

/// Returns the `TotalsError` that an error of a library consists of; `None` for any other error.
fn totals_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a TotalsError> {
    let analysis = match cause.downcast_ref() {
        Some(ReportError::Analysis(error)) => Some(error),
        _ => cause.downcast_ref(),
    };
    match analysis {
        Some(AnalysisError::Totals(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
}

/// Returns the text of a question's error. The text names the option of a wrong value.
fn question_error_text(error: &QuestionError) -> String {
    match error {
        QuestionError::NoGranularity => {
            "list shows lines of functions; --granularity has no effect here".to_string()
        }
        QuestionError::NoShares => {
            "diff shows growth, not shares of a total; --relative-percentages has no effect here"
                .to_string()
        }
        QuestionError::NotInUse(asked) => format!(
            "--sample-type {asked:?}: leaks shows only what is in use; use inuse_space or \
             inuse_objects to choose the order (for Perl values, sv_inuse_space or \
             sv_inuse_objects; for a walked heap, leaked_space, maybe_space or reached_space)"
        ),
        QuestionError::NoMatch { reason, .. } => {
            let advice = mismatch_advice(reason.as_ref());
            let reason = reason
                .as_ref()
                .map_or_else(String::new, ToString::to_string);
            format!("{error}{reason}{advice}")
        }
    }
}

/// Returns advice for an expression that matches nothing.
pub(crate) fn mismatch_advice(reason: Option<&MismatchReason>) -> &'static str {
    match reason {
        Some(MismatchReason::Ellipsis) => ", and --full-names shows it",
        Some(MismatchReason::Unescaped(_) | MismatchReason::ShortName { .. }) | None => "",
    }
}

/// Returns the option whose value an error is about.
fn option(error: &StoreError) -> &'static str {
    match error {
        StoreError::UserInAddress => "--store: ",
        StoreError::NoBatches(_) => "",
    }
}

/// Returns advice on an error of a library. The libraries do not give it, because only the program
/// has options.
fn advice(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    use heapprof_formats::{FormatError as Formats, SQLITE_DESCRIPTION};
    if let Some(error) = error.downcast_ref::<Formats>() {
        return match error {
            Formats::ValuesKnown(_) => Some("; leave --values out".to_string()),
            Formats::Unknown { kind, .. } if kind == SQLITE_DESCRIPTION => {
                Some("; give it with --db, and a profile in it by its name".to_string())
            }
            _ => None,
        };
    }
    if let Some(RunError::Failed { .. }) = error.downcast_ref() {
        return Some("; --ignore-failure continues, --show-output shows its output".to_string());
    }
    if let Some(StoreError::NoBatches(_)) = error.downcast_ref() {
        return Some("; heapprof db export --parquet writes them there".to_string());
    }
    if let Some(error) = error.downcast_ref::<ReportError>() {
        return match error {
            ReportError::NegativeSide => Some("; draw it without --base".to_string()),
            ReportError::Analysis(error) => advice(error),
            _ => None,
        };
    }
    match error.downcast_ref::<AnalysisError>()? {
        AnalysisError::Totals(TotalsError::Overflow { .. }) => {
            Some("; choose another --sample-type".to_string())
        }
        AnalysisError::DifferentTypes { .. } => {
            Some("; choose one that both have with --sample-type".to_string())
        }
        AnalysisError::NothingToScale => Some("; leave --normalize out".to_string()),
        AnalysisError::TooWide { .. } => Some("; choose one with --sample-type".to_string()),
        AnalysisError::NameTaken(name) => Some(format!(
            "; choose another with --as, or remove it with heapprof db rm {name:?}"
        )),
        AnalysisError::ReadOnly => Some("; copy it, or give another with --db".to_string()),
        AnalysisError::InProfile { error, .. } => advice(error.as_ref()),
        _ => None,
    }
}

/// Adds the name of the option to the error of a rule.
pub(crate) fn rule_error(error: AnalysisError) -> anyhow::Error {
    match error {
        AnalysisError::Rule { rule, why } => anyhow::anyhow!("--fail-if {rule:?}: {why}"),
        error => error.into(),
    }
}

/// Makes the error of reading a file. If the file exceeds a limit, the error names the option that
/// raises the limit. The readers of files do not know this option.
pub(crate) fn reading_error(error: heapprof_formats::FormatError) -> anyhow::Error {
    use heapprof_formats::FormatError;
    let limit = match &error {
        FormatError::Profile(error) if error.is_limit() => String::new(),
        FormatError::TooDense { limit, .. } => format!(" {limit}"),
        _ => return error.into(),
    };
    anyhow::anyhow!("{error}; if that size is expected, raise the limit with --max-inflated{limit}")
}

/// Prints why a command line can't be parsed, in one line: clap's message about the wrong words.
/// Without any arguments, prints the whole help.
pub(crate) fn usage(error: &clap::Error, typed: &[OsString]) {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return;
    }
    let wrong_command = match error.kind() {
        ErrorKind::InvalidSubcommand => error.get(ContextKind::InvalidSubcommand),
        _ => None,
    };
    let ours = typed.iter().skip(1).take_while(|arg| *arg != "--");
    let ours: Vec<&str> = ours.filter_map(|arg| arg.to_str()).collect();
    let wrong = error
        .get(ContextKind::InvalidArg)
        .map(|arg| arg.to_string());
    let elsewhere = wrong.and_then(|option| find_own_option(&option, &ours));
    let known = elsewhere.is_some() || wrong_command.is_some();
    let text = error.to_string();
    let kept = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        // The advice to pass an option as a value is never what is needed here.
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"))
        // A word of another tool and an unknown command get heapprof's own advice below. clap's tip
        // would name a word of heapprof's that only looks similar.
        .filter(|line| !known || !line.starts_with("tip: "))
        .map(|line| line.trim_start_matches("error: "));
    let mut words = String::new();
    for line in kept {
        let between = if line.starts_with("tip: ") { "; " } else { " " };
        if !words.is_empty() {
            words += between;
        }
        words += line;
    }
    // After `record`, an argument with one dash may belong to the program that is recorded.
    let dashed = !ours.contains(&"record") && ours.iter().any(|arg| is_of_pprof(arg));
    if let Some(meant) =
        wrong_command.and_then(|typed| suggestion::suggest_command(&typed.to_string()))
    {
        return say(&format!("{words}; {meant}; --help says more"));
    }
    match elsewhere {
        Some(ours) => say(&format!("{words}; here that is {ours}")),
        None if dashed => say(&format!(
            "{words}; pprof's own flags are for heapprof pprof; --help says more"
        )),
        None => say(&format!("{words}; --help says more")),
    }
}

/// Returns the heapprof option that does the work of another tool's option. Only options of the
/// typed commands count.
fn find_own_option(option: &str, typed: &[&str]) -> Option<&'static str> {
    let of = |commands: &[&str]| typed.iter().any(|word| commands.contains(word));
    let by_row = of(&["top", "tree", "peek", "traces", "diff", "flame"]);
    let ours = match option {
        "--cum" if of(&["top", "diff"]) => "--sort cum",
        "--lines" if by_row => "-g lines",
        "--functions" if by_row => "-g functions",
        "--files" if by_row => "-g files",
        "--addresses" if by_row => "-g addresses",
        "--diff-base" | "--diff_base" if of(&["flame"]) => "--base",
        "--base" | "--diff-base" | "--diff_base" if by_row => "heapprof diff BEFORE AFTER",
        "--inverted" | "--icicle" | "--root-on-top" if of(&["flame"]) => "--root top",
        "--pid" | "--attach" if of(&["record"]) => "heapprof attach, with the process",
        _ => return None,
    };
    Some(ours)
}

/// Whether an argument looks like a flag of pprof: one dash and a whole word.
fn is_of_pprof(arg: &str) -> bool {
    let word = arg.strip_prefix('-').filter(|word| !word.starts_with('-'));
    word.is_some_and(|word| {
        let name = word.split('=').next().unwrap_or_default();
        name.len() > 2 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    })
}

/// Prints the whole help to a user who typed too little.
pub(crate) fn help(text: &str) {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let shown = printable_lines(text);
    let _ = write!(anstream::stderr(), "{shown}{end}");
}

/// Prints a report to stderr, so that it does not mix with a program's output.
pub(crate) fn report(text: &str) {
    let _ = write!(anstream::stderr(), "{text}");
}

/// Prints a note for the user about something that does not stop the work.
pub(crate) fn note(text: &str) {
    say(text);
}

/// Prints a line for programs, without any prefix.
pub(crate) fn plain(line: &str) {
    print(&format!("{line}\n"));
}

fn say(text: &str) {
    // Names come from files and may hold anything. A message stays one line, so line ends and tabs
    // in it become blanks.
    let line = name::shown(text).replace(['\n', '\t'], " ");
    let line = format!("heapprof: {}", printable(&line));
    // A terminal would break it within words.
    let lines = match std::io::stderr().is_terminal() {
        true => fold_words(&line, output::console_columns()),
        false => vec![line],
    };
    print(&(lines.join("\n") + "\n"));
}

/// The messages that are held back while the view has the terminal; `None` if there is no view.
static DEFERRED_MESSAGES: Mutex<Option<String>> = Mutex::new(None);
/// Maximum number of bytes that are held back.
const MAX_DEFERRED_BYTES: usize = 1 << 20;

/// Holds messages back from now on, or prints the messages that were held back.
pub(crate) fn defer_messages(is_held: bool) {
    let mut held = DEFERRED_MESSAGES
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if is_held {
        held.get_or_insert_default();
    } else if let Some(text) = held.take() {
        let _ = anstream::stderr().write_all(text.as_bytes());
    }
}

/// Prints a whole line at once, because the recorded program may print to stderr, too.
fn print(line: &str) {
    let mut held = DEFERRED_MESSAGES
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = &mut *held {
        if text.len() + line.len() <= MAX_DEFERRED_BYTES {
            text.push_str(line);
        }
        return;
    }
    // If stderr is closed, a failure to print can't be reported.
    let _ = anstream::stderr().write_all(line.as_bytes());
}

/// Returns the end of a note about storing profiles: how many of them were already stored.
pub(crate) fn already_stored_suffix(there: usize) -> String {
    match there {
        0 => String::new(),
        n => format!("; {n} already existed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_their_option_once() {
        use heapprof_formats::FormatError;
        use heapprof_profile::Error as ProfileError;
        let dense = FormatError::TooDense {
            bytes: 1,
            times: 2,
            limit: 3,
        };
        let table: [(FormatError, &str); 4] = [
            (
                ProfileError::TooLarge { limit: 7 }.into(),
                "a: inflates to more than 7 bytes; if that size is expected, raise the limit with \
                 --max-inflated",
            ),
            (
                ProfileError::TooMuchMemory { limit: 7 }.into(),
                "a: takes more than 7 bytes of memory; if that size is expected, raise the limit \
                 with --max-inflated",
            ),
            (
                dense,
                "a: inflates to more than 1 bytes and 2 times its own size, which would take too \
                 long; if that size is expected, raise the limit with --max-inflated 3",
            ),
            (
                ProfileError::Empty.into(),
                "a: is empty; the program may have ended before its profile was written",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(format!("{:#}", reading_error(error).context("a")), expected);
        }
    }
}
