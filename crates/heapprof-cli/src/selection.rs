//! A selector of stored moments: it is read, asked of the database, and answered as one profile.

use std::path::Path;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{Chosen, OverTime, Selector, Source, Store, StoredMoment, chosen};
use heapprof_report::time_utc;

use crate::now;

/// Opens the database, and reads what moments it has.
pub(crate) fn open(db: &Path) -> Result<(Store, Vec<StoredMoment>)> {
    if !db.exists() {
        bail!(
            "{}: there is no such database; heapprof load makes it",
            db.display()
        );
    }
    let named = || db.display().to_string();
    let store = Store::open(db).with_context(named)?;
    let moments = store.moments().with_context(named)?;
    Ok((store, moments))
}

/// The moments that a selector chooses; all of them if it is empty.
pub(crate) fn choose(text: &str, moments: &[StoredMoment]) -> Result<Chosen> {
    let (name, selector) = match text {
        "" => ("all profiles", Selector::default()),
        text => (text, Selector::parse(text, now::nanos())?),
    };
    Ok(chosen(name, &selector, moments)?)
}

/// What the moments of a selector held together, as one profile, and a note of what they are.
pub(crate) fn read(db: &Path, text: &str, over: OverTime) -> Result<(Source, String)> {
    let (store, moments) = open(db)?;
    let chosen = choose(text, &moments)?;
    let source = chosen.profile(&store, over);
    let source = source.with_context(|| db.display().to_string())?;
    Ok((source, about(&chosen, over)))
}

/// Says what a profile of several moments shows.
fn about(chosen: &Chosen, over: OverTime) -> String {
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
    let [first, last] = ends.map(|m| m.map_or_else(String::new, |m| time_utc(m.time_nanos)));
    let in_use = match over {
        OverTime::Last => format!("those of {at_end} at the end"),
        OverTime::Mean => format!("the mean of {} moments in time", chosen.steps()),
        OverTime::Max => format!("the largest of {} moments in time", chosen.steps()),
    };
    format!(
        "{}: {of}, {first} to {last}; values in use are {in_use}, allocated ones what was added",
        chosen.name
    )
}
