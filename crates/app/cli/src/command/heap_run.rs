//! Records a program exactly, and returns only numbers: the program's peak, and the bytes in use at
//! its end.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, bail};
use heapprof_analysis::FilterNote;
use heapprof_bench::{RecordedRun, RunError, RunSetup};
use heapprof_page::QuestionNote;
use heapprof_recorder::recorded_files::profiles_of;

use crate::advice::note_question;
use crate::context::CommandContext;

/// Joins the words of a command into one line for a message.
pub(super) fn join_words(words: &[OsString]) -> String {
    let words = words.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// Splits the text of a command into words, as a shell does.
pub(super) fn split_words(text: &str) -> Result<Vec<String>> {
    let words = shlex::split(text).with_context(|| format!("{text:?}: a quote is not closed"))?;
    match words.is_empty() {
        true => bail!("{text:?} is not a command"),
        false => Ok(words),
    }
}

/// Runs a program, and returns the numbers of its heap. `uncounted` is the name of a function whose
/// memory is left out.
pub(super) fn record_heap(
    context: &CommandContext,
    how: &RunSetup<'_>,
    uncounted: Option<&str>,
) -> Result<RecordedRun> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let file = folder.path().join("run.pb.gz");
    let own = std::env::current_exe().context("cannot find heapprof's own executable")?;
    let mut command = Command::new(own);
    command
        .args(["record", "--exact", "--quiet", "--keep-small", "-o"])
        .arg(&file)
        .arg("--")
        .args(how.command);
    how.set_streams(&mut command);
    let status = command.status().context("heapprof record")?;
    if !status.success() && !how.ignores_failure {
        return Err(RunError::Failed {
            program: how.name.clone(),
            status,
            how: "when it was recorded".to_string(),
        }
        .into());
    }
    let file = file.to_string_lossy().into_owned();
    let names = match std::fs::exists(&file).unwrap_or(false) {
        true => profiles_of(&file)?,
        false => Vec::new(),
    };
    let read = |name: &String| context.sources.read(std::slice::from_ref(name));
    let note = |note: &FilterNote| note_question(QuestionNote::Filter(note));
    match RecordedRun::find(names.iter().map(read), uncounted, note)? {
        Some(found) => Ok(found),
        None => bail!(
            "{}: nothing was recorded; heapprof record -- {} says why",
            how.name,
            join_words(how.command)
        ),
    }
}
