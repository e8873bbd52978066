//! A run of a program that is recorded exactly, of which only numbers are wanted: the peak, and
//! what is in use at the end.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use heapprof_analysis::{Filters, Granularity, Query, Types, top};
use heapprof_profile::{History, Profile};

use super::Shared;
use super::forks::profiles_of;

/// What a recorded run says.
pub(super) struct HeapRun {
    /// The most bytes that were in use at a time in the process that had most.
    pub(super) peak: i64,
    /// What the program itself had in use at its end.
    pub(super) end: i64,
    /// What had most at that peak: a function with its line, and its bytes.
    pub(super) most: Option<(String, i64)>,
}

/// How a program is run.
pub(super) struct HowToRun<'a> {
    pub(super) command: &'a [OsString],
    pub(super) shows_output: bool,
    pub(super) ignores_failure: bool,
    /// Functions whose memory is not the program's.
    pub(super) without: Option<&'a str>,
}

impl HowToRun<'_> {
    /// The command, with what it prints thrown away unless it is to be shown.
    pub(super) fn streams(&self, command: &mut Command) {
        command.stdin(Stdio::null());
        if !self.shows_output {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }

    /// The program in words.
    pub(super) fn shown(&self) -> String {
        let words = self.command.iter().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Runs a program, and returns what it had allocated.
pub(super) fn heap_of(shared: &Shared, how: &HowToRun<'_>) -> Result<HeapRun> {
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
            how.shown()
        );
    }
    let file = file.to_string_lossy().into_owned();
    let names = match std::fs::exists(&file).unwrap_or(false) {
        true => profiles_of(&file)?,
        false => Vec::new(),
    };
    let mut most: Option<(i64, String)> = None;
    let mut end = 0;
    for (i, name) in names.iter().enumerate() {
        let source = shared.sources.read(std::slice::from_ref(name))?;
        if i == 0 {
            end = total(&source.profile, "inuse_space");
        }
        let peak = peak(&source.profile);
        if most.as_ref().is_none_or(|(found, _)| peak > *found) {
            most = Some((peak, name.clone()));
        }
    }
    let Some((peak, name)) = most else {
        bail!(
            "{}: nothing was recorded; heapprof record -- {} says why",
            how.shown(),
            how.shown()
        );
    };
    Ok(HeapRun {
        peak,
        end,
        most: most_of(shared, &name, how.without)?,
    })
}

/// The most bytes that were in use at a time.
fn peak(profile: &Profile) -> i64 {
    let noted = History::of(profile).and_then(|history| history.peak);
    noted.map_or_else(|| total(profile, "peak_space"), |peak| peak.bytes)
}

/// The sum of a sample type; 0 if the profile does not have it.
fn total(profile: &Profile, name: &str) -> i64 {
    let Ok(kind) = profile.find_sample_type(name) else {
        return 0;
    };
    let samples = &profile.samples;
    let values = (0..samples.len()).map(|i| samples.values(i)[kind]);
    values.fold(0, i64::saturating_add)
}

/// The line that had most at the peak.
fn most_of(shared: &Shared, name: &str, without: Option<&str>) -> Result<Option<(String, i64)>> {
    let query = Query {
        sample_type: Some("peak_space".to_string()),
        granularity: Granularity::Lines,
        limit: Some(1),
        filters: Filters {
            ignore: without.map(str::to_string),
            ..Filters::default()
        },
        ..Query::default()
    };
    let source = shared.sources.read(&[name.to_string()])?;
    let session = shared.ask(source, &query, Types::One)?;
    let top = top(&session, 1, &query, false)?;
    let first = top.rows.first().filter(|row| row.flat > 0);
    Ok(first.map(|row| (row.place.label(), row.flat)))
}
