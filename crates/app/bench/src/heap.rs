//! Numbers from the profiles of a recorded run: the peak, and the bytes in use at the end.

use heapprof_analysis::{
    AnalysisError, AnalysisSession, CodePlace, FilterNote, Granularity, ProfileQuestion, Query,
    QueryFilters, QuestionSource, TypeSelection, top::top,
};
use heapprof_profile::{HeapHistory, Profile};

/// The numbers of a recorded run.
pub struct RecordedRun {
    /// The largest number of bytes in use at one time, in the process with the largest peak. The
    /// memory of the `uncounted` function is not included: see [`RecordedRun::find`].
    pub peak: i64,
    /// Whether the `uncounted` function (see [`RecordedRun::find`]) had any bytes in use at the
    /// peak.
    pub has_uncounted: bool,
    /// Whether the process with the largest peak is the program itself, and not a child.
    pub is_main: bool,
    /// The bytes in use when the program itself ended.
    pub end: i64,
    /// The function and line with the most bytes at the peak, and the number of these bytes.
    pub most: Option<(String, i64)>,
}

impl RecordedRun {
    /// Computes the numbers of a run from the profiles of its processes. The first profile is the
    /// program's own. `uncounted` is the name of a function whose memory is left out. `note`
    /// receives notes about the search for [`most`](Self::most). Returns `None` if there is no
    /// profile.
    pub fn find<E: From<AnalysisError>>(
        sources: impl Iterator<Item = Result<QuestionSource, E>>,
        uncounted: Option<&str>,
        note: impl Fn(&FilterNote),
    ) -> Result<Option<Self>, E> {
        let mut most: Option<(i64, usize, QuestionSource)> = None;
        let mut end = 0;
        for (i, source) in sources.enumerate() {
            let source = source?;
            if i == 0 {
                end = total(&source.profile, "inuse_space");
            }
            let peak = peak(&source.profile);
            if most.as_ref().is_none_or(|(found, ..)| peak > *found) {
                most = Some((peak, i, source));
            }
        }
        let Some((peak, number, source)) = most else {
            return Ok(None);
        };
        let bytes = uncounted.map_or(0, |function| function_peak(&source.profile, function));
        let left_out = uncounted.filter(|_| bytes > 0);
        Ok(Some(Self {
            peak: peak - bytes,
            has_uncounted: bytes > 0,
            is_main: number == 0,
            end,
            most: find_largest_line(source, left_out, note)?,
        }))
    }
}

/// Returns the largest number of bytes in use at one time.
fn peak(profile: &Profile) -> i64 {
    let noted = HeapHistory::from_profile(profile).and_then(|history| history.peak);
    noted.map_or_else(|| total(profile, "peak_space"), |peak| peak.bytes)
}

/// Returns the sum of all values of the sample type `name`, or 0 if the profile does not have it.
fn total(profile: &Profile, name: &str) -> i64 {
    let Ok(kind) = profile.find_sample_type(name) else {
        return 0;
    };
    let samples = &profile.samples;
    let values = (0..samples.len()).map(|i| samples.values(i)[kind]);
    values.fold(0, i64::saturating_add)
}

/// Returns the bytes in use at the peak for a function and the functions that it calls.
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
    source: QuestionSource,
    uncounted: Option<&str>,
    note: impl Fn(&FilterNote),
) -> Result<Option<(String, i64)>, AnalysisError> {
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
    let question = ProfileQuestion::new(vec![source], &query, TypeSelection::Requested)?;
    question.notes().iter().for_each(note);
    let session = AnalysisSession::new(question)?;
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
