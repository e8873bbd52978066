//! A profile of a heap's blocks: by state, and by the stack that allocated each, if the process is
//! recorded.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result};
use heapprof_heapwalk::{Heap, Image, Marks, State, block_content};
use heapprof_live::{Process, Row};
use heapprof_profile::{Profile, ProfileBuilder};

use super::Target;
use crate::outside::{give_names, symbolizer_of};
use crate::place::Owner;

/// The sample types, the default one second.
const TYPES: [(&str, &str); 8] = [
    ("leaked_objects", "count"),
    ("leaked_space", "bytes"),
    ("maybe_objects", "count"),
    ("maybe_space", "bytes"),
    ("reached_objects", "count"),
    ("reached_space", "bytes"),
    ("free_objects", "count"),
    ("free_space", "bytes"),
];
/// The key of the label that says the state.
const KEY: &str = "state";

/// What tells blocks apart in a profile.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    /// The number of the stack that allocated them, if it is known.
    stack: Option<u32>,
    state: &'static str,
    /// Frames in the place of a stack, root first.
    frames: Vec<String>,
}

/// Makes the profile.
pub(super) fn profile(
    target: &Target,
    image: &Image,
    heap: &Heap,
    marks: &Marks,
) -> Result<Profile> {
    let recorded = match target {
        Target::Process(pid) => Process::open(*pid).ok(),
        Target::Core => None,
    };
    let blocks = recorded.as_ref().map(Process::blocks).transpose()?;
    let known: HashMap<u64, u32> = blocks
        .iter()
        .flat_map(|blocks| &blocks.all)
        .map(|block| (block.address, block.stack))
        .collect();
    let mut sums: HashMap<Place, [i64; 8]> = HashMap::new();
    for (chunk, &state) in heap.chunks.iter().zip(&marks.states) {
        let first = match state {
            State::Leaked | State::Indirect => 0,
            State::Maybe => 2,
            State::Reached => 4,
            State::Free => 6,
        };
        let stack = known
            .get(&chunk.at)
            .copied()
            .filter(|_| state != State::Free);
        let frames = match (stack, state) {
            (Some(_), _) => Vec::new(),
            (None, State::Free) => vec!["free".to_string(), class(chunk.size)],
            (None, _) => vec![
                state.name().to_string(),
                block_content(image, heap, chunk).name().to_string(),
                class(chunk.size),
            ],
        };
        let place = Place {
            stack,
            state: state.name(),
            frames,
        };
        let values = sums.entry(place).or_default();
        values[first] += 1;
        values[first + 1] += i64::try_from(chunk.size).unwrap_or(i64::MAX);
    }
    let mut rows: Vec<(Place, [i64; 8])> = sums.into_iter().collect();
    rows.sort();
    let mut profile = match &recorded {
        Some(process) if !known.is_empty() => of_process(process, &rows)?,
        _ => alone(&rows),
    };
    let default = profile.strings.intern("leaked_space");
    profile.default_sample_type = default;
    Ok(profile)
}

/// With the stacks of a recording.
fn of_process(process: &Process, rows: &[(Place, [i64; 8])]) -> Result<Profile> {
    let places: Vec<String> = rows
        .iter()
        .map(|(place, _)| place.frames.join(", "))
        .collect();
    let rows: Vec<Row<'_>> = rows
        .iter()
        .zip(&places)
        .map(|((place, values), frames)| Row {
            stack: place.stack,
            place: frames,
            kind: place.state,
            values: values.to_vec(),
        })
        .collect();
    let mut profile = process
        .profile_of(&TYPES, KEY, &rows)
        .context("the stacks of its recording")?;
    let pid = process.pid();
    let found = std::fs::metadata(format!("/proc/{pid}"));
    let owner = found.map_or_else(
        |_| Owner::us(),
        |found| Owner {
            user: found.uid(),
            group: found.gid(),
        },
    );
    give_names(&mut profile, &mut symbolizer_of(pid), owner)?;
    Ok(profile)
}

/// Without one: the state, the content and the size are the frames.
fn alone(rows: &[(Place, [i64; 8])]) -> Profile {
    let mut builder = ProfileBuilder::new(&TYPES);
    for (place, values) in rows {
        builder.folded(&place.frames.join(";"), values);
    }
    builder.finish()
}

/// The class of a size: powers of two.
fn class(size: u64) -> String {
    let size = size.max(1);
    let low = 1u64 << size.ilog2();
    format!("{low} B to {} B", low.saturating_mul(2) - 1)
}
