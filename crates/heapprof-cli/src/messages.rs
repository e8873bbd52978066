//! What heapprof says beside its data: on stderr, one line each. The only place that prints there.
#![allow(clippy::print_stderr)]

use std::io::Write;

use clap::error::ContextKind;

/// An error: `heapprof: FILE: what, where; what to do`.
pub(crate) fn error(error: &anyhow::Error) {
    say(&format!("{error:#}"));
}

/// A command line that can't be read: clap's words, in one line. Without any arguments the whole help.
pub(crate) fn usage(error: &clap::Error) {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return;
    }
    let text = error.to_string();
    let kept = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        // That an option be a value is never what is meant here.
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"))
        .map(|line| line.trim_start_matches("error: "));
    let mut words = String::new();
    for line in kept {
        let between = if line.starts_with("tip: ") { "; " } else { " " };
        if !words.is_empty() {
            words += between;
        }
        words += line;
    }
    let typed = error.get(ContextKind::InvalidArg);
    let elsewhere = typed.and_then(|typed| elsewhere(&typed.to_string()));
    let dashed = std::env::args().skip(1).any(|arg| is_of_pprof(&arg));
    match elsewhere {
        Some(ours) => say(&format!("{words}; here that is {ours}")),
        None if dashed => say(&format!(
            "{words}; pprof's own flags are for heapprof pprof; --help says more"
        )),
        None => say(&format!("{words}; --help says more")),
    }
}

/// What other tools' options are here.
fn elsewhere(option: &str) -> Option<&'static str> {
    let ours = match option {
        "--cum" => "--sort cum",
        "--lines" => "-g lines",
        "--functions" => "-g functions",
        "--files" => "-g files",
        "--addresses" => "-g addresses",
        "--base" | "--diff-base" | "--diff_base" => "heapprof diff BEFORE AFTER",
        "--pid" | "--attach" => {
            "to start the program under record: a running one can't be attached to"
        }
        _ => return None,
    };
    Some(ours)
}

/// Whether it is one of pprof's flags, which have a dash and a whole word.
fn is_of_pprof(arg: &str) -> bool {
    let word = arg.strip_prefix('-').filter(|word| !word.starts_with('-'));
    word.is_some_and(|word| {
        let name = word.split('=').next().unwrap_or_default();
        name.len() > 2 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    })
}

/// The whole help, to someone who typed too little.
pub(crate) fn help(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Something the user may want to know; the work goes on.
pub(crate) fn note(text: &str) {
    say(text);
}

fn say(text: &str) {
    // Names come from files and may hold anything; a message stays one line.
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    // Nobody is left to be told when stderr is closed.
    let _ = writeln!(anstream::stderr(), "heapprof: {line}");
}
