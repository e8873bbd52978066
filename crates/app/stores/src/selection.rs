//! Selectors of stored moments: parses a selector, queries the store, and makes one profile of the
//! moments.

use std::collections::HashSet;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    QuestionSource,
    series::{
        MomentAggregation, MomentSelection, MomentSelector, choose_moments, selection_from_moments,
    },
    stored_moment::StoredMoment,
};
use heapprof_report::time_utc;

use crate::backend::StoreBackend;
use crate::open::open;

/// Returns the moments that a selector chooses; all moments if the selector is empty. `now` is the
/// present time in nanoseconds since 1970 UTC, to which times in a selector may be relative.
pub fn choose(text: &str, now: i64, moments: &[StoredMoment]) -> Result<MomentSelection> {
    let (name, selector) = match text {
        "" => ("all profiles", MomentSelector::default()),
        text => (text, MomentSelector::parse(text, now)?),
    };
    Ok(choose_moments(name, &selector, moments)?)
}

/// The profile of all moments that a selector chooses.
pub struct SelectedProfile {
    /// The moments as one profile.
    pub source: QuestionSource,
    /// A sentence about the moments.
    pub about: String,
    /// The names of the profiles whose values in use are added up. `None` if some profile does not
    /// count exactly once.
    pub names: Option<Vec<String>>,
}

/// Reads the moments that a selector chooses as one profile. `now` is the time for [`choose`].
pub fn read_selection(
    backend: &StoreBackend,
    text: &str,
    now: i64,
    over: MomentAggregation,
) -> Result<SelectedProfile> {
    let (store, moments) = open(backend)?;
    let of_name: Vec<&StoredMoment> = moments.iter().filter(|m| m.name == text).collect();
    let chosen = match &of_name[..] {
        [] => choose(text, now, &moments)?,
        [named] => selection_from_moments(text, vec![(*named).clone()]),
        several => bail!(
            "{}: has {} profiles named {text}; choose one by its labels, such as host=web1",
            backend.name(),
            several.len()
        ),
    };
    let source = chosen.profile(&*store, over);
    let source = source.with_context(|| backend.name())?;
    Ok(SelectedProfile {
        source,
        about: about(&chosen, over),
        names: chosen
            .names(over)
            .filter(|names| are_unique(names.iter().map(String::as_str), &moments)),
    })
}

/// Whether each name belongs to a single profile. Machines that write into one store may have used
/// equal names.
pub fn are_unique<'a>(names: impl Iterator<Item = &'a str>, moments: &[StoredMoment]) -> bool {
    let wanted: HashSet<&str> = names.collect();
    let mut seen = HashSet::new();
    let mut of_names = moments.iter().filter(|m| wanted.contains(&*m.name));
    of_names.all(|moment| seen.insert(&*moment.name))
}

/// Describes the content of a profile of several moments.
fn about(chosen: &MomentSelection, over: MomentAggregation) -> String {
    let count = |n: usize, one: &str, many: &str| match n {
        1 => format!("1 {one}"),
        n => format!("{n} {many}"),
    };
    let [processes, at_end] = chosen.processes();
    let of = format!(
        "{} of {}",
        count(chosen.moments.len(), "profile", "profiles"),
        count(processes, "process", "processes")
    );
    let ends = [chosen.moments.first(), chosen.moments.last()];
    let time = |moment: &StoredMoment| match moment.time_nanos {
        0 => "an unknown time".to_string(),
        nanos => time_utc(nanos),
    };
    let [first, last] = ends.map(|moment| moment.map_or_else(String::new, time));
    let in_use = match over {
        MomentAggregation::Last => format!("those of {at_end} at the end"),
        MomentAggregation::Mean => format!("the mean of {} moments in time", chosen.steps()),
        MomentAggregation::Max => format!("the largest of {} moments in time", chosen.steps()),
    };
    format!(
        "{}: {of}, {first} to {last}; values in use are {in_use}, allocated values are the \
         increase over that time",
        chosen.name
    )
}
