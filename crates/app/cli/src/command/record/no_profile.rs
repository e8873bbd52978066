//! Explains why a recording left no profile at all.

use heapprof_recorder::{ProcessEndings, ProgramExit, RecordingOutcome};

use super::words::describe_left_out;

/// Explains why there is no profile at all, and how many children were left out.
pub(super) fn reason(outcome: &RecordingOutcome) -> String {
    let why = why_nothing(&outcome.ended, &outcome.ending);
    match outcome.small_children {
        0 => why,
        small => format!("{why}; {}", describe_left_out(small)),
    }
}

/// Explains why the program left no profile.
fn why_nothing(ended: &ProgramExit, ending: &ProcessEndings) -> String {
    if ending.unread.contains(&ended.process) {
        return "no profile: the program left none, and its data could not be read".to_string();
    }
    let mut unrecorded = ending.unrecorded.iter();
    if let Some(one) = unrecorded.find(|one| one.process == ended.process) {
        return format!("no profile: {} was not recorded: {}", one.program, one.why);
    }
    match ended.signal {
        Some(signal) => format!(
            "no profile: the program was killed by signal {signal} before it could write one{}; \
             --interval 10s writes profiles while it runs",
            ending
                .why_private(ended.process)
                .map_or(String::new(), |why| format!(
                    ", and its recorded data was in private memory ({why})"
                ))
        ),
        None => {
            "no profile was written: the library was not loaded into the program (static, setuid, \
             for another C library, or started with its own environment), or the program called \
             exit_group directly, had no file descriptor left, or could not write to its path"
                .to_string()
        }
    }
}
