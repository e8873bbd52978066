//! The records of an audit of forked children, as rows: the children, the files that they loaded,
//! and the memory on pages that they no longer share.
//!
//! The cost of a load is in the child's own profile: a stack contains the frame of the file that is
//! loaded (`require A.pm`, `do a.pl`, `(eval string)`). Only memory that the child allocated itself
//! counts. The label `generation` distinguishes this memory from inherited memory.

use std::collections::{HashMap, HashSet};

use heapprof_profile::fork::{
    COW_TYPES, ChildAudit, ForkedChild, KIND_LABEL, LoadAttempt, LoadOutcome,
};
use heapprof_profile::recording_texts::GENERATION_LABEL;
use heapprof_profile::{Label, Profile};

use heapprof_totals::entity::EntityTable;

use crate::part::QuestionPart;

/// All rows of a question about forked children.
#[derive(Debug, Default)]
pub(crate) struct ForkTables {
    pub(crate) children: Vec<ForkChildRow>,
    pub(crate) loads: Vec<ForkLoadRow>,
    pub(crate) unshared: Vec<ForkUnsharedRow>,
}

/// A row about a forked child.
#[derive(Debug)]
pub(crate) struct ForkChildRow {
    /// The position of the row's profile among the profiles of the question.
    pub(crate) part: usize,
    pub(crate) fork: ForkedChild,
}

/// A row about a file or a text that a process loaded, or tried to load.
#[derive(Debug, Default)]
pub(crate) struct ForkLoadRow {
    pub(crate) part: usize,
    /// The process id; 0 if the profile does not have it.
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) outcome: LoadOutcome,
    /// The time that the load took, in microseconds, if it was recorded.
    pub(crate) micros: Option<i64>,
    /// The code that requested the load, and its callers.
    pub(crate) site: String,
    pub(crate) stats: i64,
    pub(crate) opens: i64,
    /// Number of bytes in use that loading the file allocated, without the files that the loaded
    /// file loads. `cum` includes these files.
    pub(crate) flat: i64,
    pub(crate) cum: i64,
}

/// A row about inherited pages that a child no longer shares.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ForkUnsharedRow {
    pub(crate) part: usize,
    pub(crate) pid: u32,
    pub(crate) kind: String,
    /// The entity at the leaf of the stack that allocated the memory.
    pub(crate) entity: u32,
    pub(crate) objects: i64,
    pub(crate) bytes: i64,
}

/// Largest number of frames in a [`ForkLoadRow::site`].
const MAX_SITE_FRAMES: usize = 8;
/// The name of the frame for an evaluated text.
const EVAL_FRAME_NAME: &str = "(eval string)";

/// Returns the rows about forked children from all profiles of a question.
pub(crate) fn forks(parts: &[QuestionPart], table: &EntityTable) -> ForkTables {
    let mut forks = ForkTables::default();
    let audited: Vec<Option<ChildAudit>> = parts
        .iter()
        .map(|part| ChildAudit::from_profile(&part.profile))
        .collect();
    // The audited profiles in the order of the forks, in which attempts are counted.
    let mut order: Vec<usize> = (0..parts.len()).filter(|&i| audited[i].is_some()).collect();
    order.sort_by_key(|&i| {
        audited[i]
            .as_ref()
            .map(|of| (of.fork.forked_at, of.fork.pid))
    });
    let mut by_child: HashMap<Option<usize>, HashMap<String, LoadCost>> = HashMap::new();
    for (at, part) in parts.iter().enumerate() {
        if audited[at].is_some() {
            continue;
        }
        let child = child_of(&part.profile, &audited);
        let generation = match child.and_then(|child| audited[child].as_ref()) {
            Some(of) => of.fork.generation,
            // Without an audit, the loads of the newest generation in the profile count.
            None if order.is_empty() => newest_generation(&part.profile),
            None => continue,
        };
        let pid = profile_pid(&part.profile);
        let of_child = by_child.entry(child).or_default();
        for (name, taken) in load_costs(table, part, generation) {
            let entry = of_child.entry(name).or_insert(LoadCost {
                part: at,
                pid,
                ..LoadCost::default()
            });
            entry.flat = entry.flat.saturating_add(taken.flat);
            entry.cum = entry.cum.saturating_add(taken.cum);
            if entry.site.is_empty() {
                (entry.site, entry.kind) = (taken.site, taken.kind);
            }
        }
    }
    for at in order {
        let Some(of) = &audited[at] else { continue };
        let pid = of.fork.pid;
        let mut rest = by_child.remove(&Some(at)).unwrap_or_default();
        forks.loads.extend(rows_from_audit(at, of, &mut rest));
        // Loads that the audit did not record appear only in stacks.
        forks.loads.extend(rows_from_stacks(at, rest));
        forks
            .unshared
            .extend(unshared_rows(table, &parts[at], at, pid));
        forks.children.push(ForkChildRow {
            part: at,
            fork: of.fork.clone(),
        });
    }
    if let Some(rest) = by_child.remove(&None) {
        let first = rest.values().map(|taken| taken.part).min().unwrap_or(0);
        forks.loads.extend(rows_from_stacks(first, rest));
    }
    forks
}

/// Returns the audited child that a profile belongs to. Of the children with the profile's process
/// id, this is the child that was forked nearest to the beginning of the recording.
fn child_of(profile: &Profile, audited: &[Option<ChildAudit>]) -> Option<usize> {
    let pid = profile_pid(profile);
    let began = profile.time_nanos.saturating_sub(profile.duration_nanos) / 1000;
    let all = audited.iter().enumerate();
    let all = all.filter_map(|(i, of)| Some((i, &of.as_ref()?.fork)));
    let all = all.filter(|(_, fork)| fork.pid == pid);
    let nearest = all.min_by_key(|(_, fork)| fork.forked_at.abs_diff(began));
    nearest.map(|(i, _)| i)
}

/// Returns rows for loads that no audit recorded. These loads appear only in stacks.
fn rows_from_stacks(part: usize, rest: HashMap<String, LoadCost>) -> Vec<ForkLoadRow> {
    let mut rest: Vec<(String, LoadCost)> = rest.into_iter().collect();
    rest.sort_by(|a, b| a.0.cmp(&b.0));
    let row = |(name, taken): (String, LoadCost)| ForkLoadRow {
        part,
        pid: taken.pid,
        name,
        kind: taken.kind.to_string(),
        site: taken.site,
        flat: taken.flat,
        cum: taken.cum,
        ..ForkLoadRow::default()
    };
    rest.into_iter().map(row).collect()
}

/// Returns rows for the loads that an audit recorded for a child, with the bytes in the child's
/// stacks.
fn rows_from_audit(
    part: usize,
    of: &ChildAudit,
    by_name: &mut HashMap<String, LoadCost>,
) -> Vec<ForkLoadRow> {
    let pid = of.fork.pid;
    let is_loaded = |load: &&LoadAttempt| load.outcome == LoadOutcome::Loaded;
    let loaded = of.loads.iter().filter(is_loaded);
    let loaded: HashSet<&str> = loaded.map(|load| &*load.name).collect();
    let mut rows = Vec::new();
    for load in &of.loads {
        let taken = match load.outcome {
            LoadOutcome::NotFound => None,
            // A failed load may have left memory behind, but the later load with that name has
            // more.
            LoadOutcome::Failed if loaded.contains(&*load.name) => None,
            // A second attempt loads nothing new, so the first one takes all bytes.
            _ => by_name.remove(&load.name),
        };
        let taken = taken.unwrap_or_default();
        rows.push(ForkLoadRow {
            part,
            pid,
            name: load.name.clone(),
            kind: load.kind.clone(),
            outcome: load.outcome,
            micros: Some(load.micros),
            site: load.site.clone(),
            stats: load.stats,
            opens: load.opens,
            flat: taken.flat,
            cum: taken.cum,
        });
    }
    for mapped in &of.mapped {
        let is_xs = mapped.name.contains("/auto/");
        rows.push(ForkLoadRow {
            part,
            pid,
            name: mapped.name.clone(),
            kind: if is_xs { "XS" } else { "dlopen" }.to_string(),
            flat: mapped.private,
            cum: mapped.private,
            ..ForkLoadRow::default()
        });
    }
    rows
}

/// The memory that a load allocated.
#[derive(Debug, Default)]
struct LoadCost {
    part: usize,
    pid: u32,
    kind: &'static str,
    site: String,
    flat: i64,
    cum: i64,
}

/// Returns the file or text that a frame with this name loads, and the kind of load.
fn parse_load_frame(name: &str) -> Option<(&str, &'static str)> {
    let file = |how| name.strip_prefix(how).filter(|file| !file.is_empty());
    match (file("require "), file("do ")) {
        (Some(file), _) => Some((file, "require")),
        (_, Some(file)) => Some((file, "do")),
        _ if name == EVAL_FRAME_NAME => Some((name, "string eval")),
        _ => None,
    }
}

/// Returns the memory that loads allocated in processes of this generation and later ones, by the
/// name of the loaded file or text.
fn load_costs(
    table: &EntityTable,
    part: &QuestionPart,
    generation: u32,
) -> HashMap<String, LoadCost> {
    let profile = &part.profile;
    let samples = &profile.samples;
    let column = profile
        .find_sample_type("inuse_space")
        .unwrap_or(part.column);
    let mut all: HashMap<String, LoadCost> = HashMap::new();
    let (mut stack, mut seen) = (Vec::new(), HashSet::new());
    for i in 0..samples.len() {
        let value = samples.values(i)[column];
        if value == 0 || generation_of(profile, i) < generation {
            continue;
        }
        if !part.view.visible(samples, i, &mut stack) {
            continue;
        }
        seen.clear();
        let mut is_innermost = true;
        for (depth, &frame) in stack.iter().enumerate() {
            let entity = part.entities.entity[frame as usize];
            let Some((name, kind)) = parse_load_frame(table.name(entity)) else {
                continue;
            };
            let site = || site(table, part, &stack[depth + 1..]);
            // An evaluation of a text is named by the place that it is called from.
            let name = match kind {
                "string eval" => {
                    let site = site();
                    let first = site.split(" < ").next().unwrap_or_default();
                    format!("eval at {first}")
                }
                _ => name.to_string(),
            };
            if !seen.insert(name.clone()) {
                continue;
            }
            let entry = all.entry(name).or_insert_with(|| LoadCost {
                kind,
                site: site(),
                ..LoadCost::default()
            });
            if std::mem::take(&mut is_innermost) {
                entry.flat = entry.flat.saturating_add(value);
            }
            entry.cum = entry.cum.saturating_add(value);
        }
    }
    all
}

/// Returns the places of these frames as one text, in the format of [`ForkLoadRow::site`].
fn site(table: &EntityTable, part: &QuestionPart, frames: &[u32]) -> String {
    let mut places: Vec<String> = Vec::new();
    for &frame in frames {
        let entity = &table.entity[part.entities.entity[frame as usize] as usize];
        let function = &table.function[entity.function as usize];
        let file = table.text(function.filename);
        if file.is_empty() || places.len() == MAX_SITE_FRAMES {
            continue;
        }
        let place = format!("{file}:{}", entity.line);
        if places.last() != Some(&place) {
            places.push(place);
        }
    }
    places.join(" < ")
}

/// Returns the rows about pages that a child no longer shares.
fn unshared_rows(
    table: &EntityTable,
    part: &QuestionPart,
    at: usize,
    pid: u32,
) -> Vec<ForkUnsharedRow> {
    let profile = &part.profile;
    let samples = &profile.samples;
    let find = |i: usize| profile.find_sample_type(COW_TYPES[i].0).ok();
    let (Some(objects), Some(bytes)) = (find(0), find(1)) else {
        return Vec::new();
    };
    let mut sums: HashMap<(String, u32), [i64; 2]> = HashMap::new();
    let mut stack = Vec::new();
    for i in 0..samples.len() {
        if !part.view.visible(samples, i, &mut stack) {
            continue;
        }
        let entity = match stack.first() {
            Some(&leaf) => part.entities.entity[leaf as usize],
            None => table.empty_stack,
        };
        let values = samples.values(i);
        let sum = sums
            .entry((text_label(profile, i, KIND_LABEL), entity))
            .or_default();
        sum[0] = sum[0].saturating_add(values[objects]);
        sum[1] = sum[1].saturating_add(values[bytes]);
    }
    let rows = sums
        .into_iter()
        .map(|((kind, entity), [objects, bytes])| ForkUnsharedRow {
            part: at,
            pid,
            kind,
            entity,
            objects,
            bytes,
        });
    let mut rows: Vec<ForkUnsharedRow> = rows.collect();
    rows.sort_by(|a, b| (b.bytes, &a.kind, a.entity).cmp(&(a.bytes, &b.kind, b.entity)));
    rows
}

/// Returns the process id of a profile; 0 if the profile does not have it.
fn profile_pid(profile: &Profile) -> u32 {
    let mut comments = profile.comment.iter().map(|&text| profile.text(text));
    let pid = comments.find_map(|text| text.strip_prefix("pid: ")?.parse().ok());
    pid.unwrap_or(0)
}

/// Returns the newest generation among the processes whose allocations a profile has.
fn newest_generation(profile: &Profile) -> u32 {
    let all = (0..profile.samples.len()).map(|i| generation_of(profile, i));
    all.max().unwrap_or(0)
}

/// Returns a sample's label with this key.
fn label<'p>(profile: &'p Profile, sample: usize, key: &str) -> Option<&'p Label> {
    let labels = profile.label_sets.get(profile.samples.label_set(sample));
    labels.iter().find(|label| profile.text(label.key) == key)
}

/// Returns the generation of the process that made the allocations of a sample.
fn generation_of(profile: &Profile, sample: usize) -> u32 {
    let found = label(profile, sample, GENERATION_LABEL);
    found.map_or(0, |label| u32::try_from(label.num).unwrap_or(0))
}

/// Returns the text of a sample's label; empty if the sample has no label with that key.
fn text_label(profile: &Profile, sample: usize, key: &str) -> String {
    let found = label(profile, sample, key);
    found.map_or_else(String::new, |label| profile.text(label.str).to_string())
}
