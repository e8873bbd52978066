//! Runs a program that is recorded exactly, and returns only numbers: the peak, and the bytes in
//! use at the end.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    CodePlace, Granularity, Query, QueryFilters, QuestionSource, TypeSelection, top,
};
use heapprof_profile::{HeapHistory, Profile};

use super::forks::profiles_of;
use crate::context::CommandContext;

/// The numbers of a recorded run.
pub(super) struct HeapRun {
    /// The largest number of bytes in use at one time, in the process with the largest peak. The
    /// bytes of the function that does not count are left out.
    pub(super) peak: i64,
    /// Whether the function that does not count had any bytes at the peak.
    pub(super) has_uncounted: bool,
    /// Whether the process with the largest peak is the program itself, and not a child.
    pub(super) is_main: bool,
    /// The bytes that the program itself had in use at its end.
    pub(super) end: i64,
    /// The function and line with the most bytes at the peak, and these bytes.
    pub(super) most: Option<(String, i64)>,
}

/// How a program is run.
pub(super) struct RunSetup<'a> {
    pub(super) command: &'a [OsString],
    pub(super) shows_output: bool,
    pub(super) ignores_failure: bool,
    /// The program's name in messages.
    pub(super) name: String,
    /// A function whose memory does not count, by its name.
    pub(super) uncounted: Option<&'a str>,
}

impl RunSetup<'_> {
    /// Sets the streams of a command: its output is discarded unless it is to be shown.
    pub(super) fn streams(&self, command: &mut Command) {
        command.stdin(Stdio::null());
        if !self.shows_output {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
}

/// Joins the words of a command to one line, as a person reads it.
pub(super) fn join_words(words: &[OsString]) -> String {
    let words = words.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// Splits a command that is one text into words, as a shell does it.
pub(super) fn split_words(text: &str) -> Result<Vec<String>> {
    let words = shlex::split(text).with_context(|| format!("{text:?}: a quote is not closed"))?;
    match words.is_empty() {
        true => bail!("{text:?} is no command"),
        false => Ok(words),
    }
}

/// Runs a program, and returns the numbers of its heap.
pub(super) fn record_heap(context: &CommandContext, how: &RunSetup<'_>) -> Result<HeapRun> {
    let folder = tempfile::tempdir().context("no temporary folder can be made")?;
    let file = folder.path().join("run.pb.gz");
    let own = std::env::current_exe().context("heapprof's own file is not known")?;
    let mut command = Command::new(own);
    command
        .args(["record", "--exact", "--quiet", "--keep-small", "-o"])
        .arg(&file)
        .arg("--")
        .args(how.command);
    how.streams(&mut command);
    let status = command.status().context("heapprof record")?;
    if !status.success() && !how.ignores_failure {
        bail!(
            "{}: {status} when it was recorded; --ignore-failure goes on, --show-output shows what \
             it says",
            how.name
        );
    }
    let file = file.to_string_lossy().into_owned();
    let names = match std::fs::exists(&file).unwrap_or(false) {
        true => profiles_of(&file)?,
        false => Vec::new(),
    };
    let mut most: Option<(i64, usize, QuestionSource)> = None;
    let mut end = 0;
    for (i, name) in names.iter().enumerate() {
        let source = context.sources.read(std::slice::from_ref(name))?;
        if i == 0 {
            end = total(&source.profile, "inuse_space");
        }
        let peak = peak(&source.profile);
        if most.as_ref().is_none_or(|(found, ..)| peak > *found) {
            most = Some((peak, i, source));
        }
    }
    let Some((peak, number, source)) = most else {
        bail!(
            "{}: nothing was recorded; heapprof record -- {} says why",
            how.name,
            join_words(how.command)
        );
    };
    let uncounted = how
        .uncounted
        .map_or(0, |function| function_peak(&source.profile, function));
    let left_out = how.uncounted.filter(|_| uncounted > 0);
    Ok(HeapRun {
        peak: peak - uncounted,
        has_uncounted: uncounted > 0,
        is_main: number == 0,
        end,
        most: find_largest_line(context, source, left_out)?,
    })
}

/// Returns the largest number of bytes in use at one time.
fn peak(profile: &Profile) -> i64 {
    let noted = HeapHistory::from_profile(profile).and_then(|history| history.peak);
    noted.map_or_else(|| total(profile, "peak_space"), |peak| peak.bytes)
}

/// Returns the sum of a sample type, or 0 if the profile does not have it.
fn total(profile: &Profile, name: &str) -> i64 {
    let Ok(kind) = profile.find_sample_type(name) else {
        return 0;
    };
    let samples = &profile.samples;
    let values = (0..samples.len()).map(|i| samples.values(i)[kind]);
    values.fold(0, i64::saturating_add)
}

/// Returns the bytes that a function and the functions that it calls had in use at the peak.
fn function_peak(profile: &Profile, function: &str) -> i64 {
    let Ok(kind) = profile.find_sample_type("peak_space") else {
        return 0;
    };
    let samples = &profile.samples;
    let is_it = |sample: &usize| {
        let locations = samples.stack(*sample).iter();
        let mut lines = locations.flat_map(|&at| profile.lines(&profile.location[at.index()]));
        lines.any(|line| {
            let name = profile.function[line.function.index()].name;
            profile.strings.get(name) == function
        })
    };
    let values = (0..samples.len())
        .filter(is_it)
        .map(|i| samples.values(i)[kind]);
    values.fold(0, i64::saturating_add)
}

/// Returns the line with the most bytes at the peak.
fn find_largest_line(
    context: &CommandContext,
    source: QuestionSource,
    uncounted: Option<&str>,
) -> Result<Option<(String, i64)>> {
    let query = Query {
        sample_type: Some("peak_space".to_string()),
        granularity: Granularity::Lines,
        limit: Some(1),
        filters: QueryFilters {
            ignore: uncounted.map(|name| format!("^{name}$")),
            ..QueryFilters::default()
        },
        ..Query::default()
    };
    let session = context.ask(source, &query, TypeSelection::Requested)?;
    let top = top(&session, 1, &query, false)?;
    let first = top.rows.first().filter(|row| row.flat > 0);
    Ok(first.map(|row| (describe_place(&row.place), row.flat)))
}

/// Describes a place in a few words: its function, the last part of its file, its line.
fn describe_place(place: &CodePlace) -> String {
    let file = place.file.as_deref().unwrap_or_default();
    let file = file.rsplit('/').next().unwrap_or_default();
    match place.line.filter(|_| !file.is_empty()) {
        Some(line) => format!("{} {file}:{line}", place.function),
        None => place.function.clone(),
    }
}
