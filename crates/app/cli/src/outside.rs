//! Reads the source of a `pid:` or `core:` argument: a recorded process, or a core file.

use anyhow::{Context, Result, anyhow};
use heapprof_analysis::QuestionSource;
use heapprof_live::LiveError;
use heapprof_recorder::outside::{OutsideProcess, ProcessFindError, read_core};
use heapprof_recorder::rights;

use crate::{messages, name};

/// The prefix of an argument that names a process, by its number or its name.
const PID_PREFIX: &str = "pid:";
/// The prefix of an argument that names a core file, by its path.
const CORE_PREFIX: &str = "core:";

/// The target that an argument names.
enum OutsideTarget<'a> {
    /// A process, by its number or its name.
    Process(&'a str),
    /// A core file, by its path.
    Core(&'a str),
}

/// Returns the process or the core file that an argument names. Returns `None` for any other
/// argument, such as the name of an existing file that begins with `pid:` or `core:`.
fn parse_target(argument: &str) -> Option<OutsideTarget<'_>> {
    let process = argument
        .strip_prefix(PID_PREFIX)
        .map(OutsideTarget::Process);
    let named = process.or_else(|| argument.strip_prefix(CORE_PREFIX).map(OutsideTarget::Core))?;
    (!name::path(argument).exists()).then_some(named)
}

/// Whether an argument names a process.
pub(crate) fn is_process(argument: &str) -> bool {
    matches!(parse_target(argument), Some(OutsideTarget::Process(_)))
}

/// Whether an argument names a process or a core file.
pub(crate) fn is_outside(argument: &str) -> bool {
    parse_target(argument).is_some()
}

/// Reads the profile that an argument names; `None` if it names neither a process nor a core file.
pub(crate) fn read(argument: &str) -> Result<Option<QuestionSource>> {
    let shown = name::shown(argument);
    let profile = match parse_target(argument) {
        None => return Ok(None),
        // The error of a process that can't be found names the process.
        Some(OutsideTarget::Process(which)) => find_for_reader(which)?.read(),
        Some(OutsideTarget::Core(path)) => read_core(&name::path(path)),
    };
    let profile = profile.with_context(|| shown.clone().into_owned())?;
    Ok(Some(QuestionSource::new(shown, profile)))
}

/// Finds the process with a number or a name, with or without the prefix `pid:`.
pub(crate) fn find(which: &str) -> Result<OutsideProcess> {
    let which = which.strip_prefix(PID_PREFIX).unwrap_or(which);
    OutsideProcess::find(which).map_err(with_advice)
}

/// Finds a process as [`find`] does. Prints a note if the recording of the process has ended.
pub(crate) fn find_for_reader(which: &str) -> Result<OutsideProcess> {
    let found = find(which)?;
    if found.has_stopped_recording() {
        messages::note(&format!(
            "process {}: its recording has ended; this is what it had recorded by then",
            found.pid()
        ));
    }
    Ok(found)
}

/// Adds advice to the error of finding a process.
fn with_advice(error: ProcessFindError) -> anyhow::Error {
    let advice = match &error {
        ProcessFindError::NoName => "; give its number or its name, as in pid:1234",
        ProcessFindError::NotRecorded(_) => "; heapprof proc --recorded shows which are",
        ProcessFindError::Unreadable { error, .. } => advice_on_reading(error),
        ProcessFindError::Several { .. } => "",
        // The reason why the processes can't be listed is its source.
        ProcessFindError::Unlisted(_) => return error.into(),
    };
    anyhow!("{error}{advice}")
}

/// Returns advice on a process that can't be read.
fn advice_on_reading(error: &LiveError) -> &'static str {
    match error {
        LiveError::NotRecorded => {
            "; heapprof attach records it from now on, and heapprof heap blocks shows its heap"
        }
        LiveError::NotAllowed if rights::is_root() => heapprof_process::refused_to_root(),
        LiveError::NotAllowed => {
            "; run heapprof as its user or as root; where kernel.yama.ptrace_scope is not 0, that \
             user can read only what heapprof record started"
        }
        LiveError::OtherVersion(..) => "; read it with the version of heapprof that recorded it",
        _ => "",
    }
}
