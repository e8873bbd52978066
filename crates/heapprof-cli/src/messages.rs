//! What heapprof says beside its data: on stderr, one line each. The only place that prints there.
#![allow(clippy::print_stderr)]

use std::io::Write;

/// An error: `heapprof: FILE: what, where; what to do`.
pub(crate) fn error(error: &anyhow::Error) {
    say(&format!("{error:#}"));
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
