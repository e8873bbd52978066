//! What heapprof says beside its data: on stderr, one line each. The only place that prints there.
#![allow(clippy::print_stderr)]

use std::io::Write;

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
        .filter(|line| !line.is_empty());
    let words: Vec<&str> = kept.collect();
    let words = words.join(" ");
    say(&format!(
        "{}; --help says more",
        words.trim_start_matches("error: ")
    ));
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
