//! `heapprof prune SELECTOR --keep …`: thins out, puts together, or removes old moments.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    ProfileStore, ROLLED_UP_LABEL, SeriesProcesses, StoredMoment, is_counter, roll_up,
    selection_from_moments, service_labels,
};

use super::rm;
use crate::args::{PruneArgs, RetentionRule};
use crate::backend::StoreBackend;
use crate::context::CommandContext;
use crate::{messages, now, selection, stores};

pub(super) fn run(context: &CommandContext, args: &PruneArgs) -> Result<()> {
    let db = context.sources.db();
    let named = || db.display().to_string();
    let (store, all) = stores::open(&StoreBackend::Database(db.to_path_buf()))?;
    let moments = selection::choose(&args.selector, &all)?.moments;
    let mut plan = plan(&moments, &args.keep, args.roll_up, now::nanos());
    // A profile that was loaded after its step was put together stays as it is.
    let groups = plan.together.keys();
    let groups: BTreeMap<String, RollupGroup> =
        groups.map(|group| (group.name(), group.clone())).collect();
    for (name, group) in all
        .iter()
        .filter_map(|moment| groups.get_key_value(&moment.name))
    {
        let late = plan.together.remove(group).unwrap_or_default();
        plan.removed.retain(|at| !late.contains(at));
        let (they, stay) = match late.len() {
            1 => ("1 profile that was".to_string(), "it stays"),
            n => (format!("{n} profiles that were"), "they stay"),
        };
        messages::note(&format!(
            "{name}: was put together without {they} loaded later; {stay}"
        ));
    }
    check_whole_service(&plan, &args.selector, &moments, &all)?;
    let said = describe_plan(&plan, &moments);
    if args.dry_run {
        messages::note(&format!("{}: would {said}", db.display()));
        return Ok(());
    }
    let mut added = Vec::new();
    for (group, there) in moments_at_step_end(&plan, &moments) {
        let name = group.name();
        added.push(
            roll_up(&*store, &name, &selection_from_moments(&name, there)).with_context(named)?,
        );
    }
    drop(store);
    let removed = plan.removed.iter();
    let removed: Vec<String> = removed.map(|&at| moments[at].name.clone()).collect();
    if !removed.is_empty() {
        let mut store = ProfileStore::open_to_write(db).with_context(named)?;
        store.replace(&added, &removed).with_context(named)?;
        rm::give_back(&mut store, db);
    }
    messages::note(&format!("{}: {}", db.display(), to_past_tense(&said)));
    Ok(())
}

/// A group of moments that are put together: those of a service's hosts in a step of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RollupGroup {
    labels: BTreeMap<String, String>,
    begin: i64,
    end: i64,
}

impl RollupGroup {
    /// Whether a moment belongs to a host of the service, in this step.
    fn has(&self, moment: &StoredMoment) -> bool {
        (self.begin..self.end).contains(&moment.time_nanos) && self.is_of_service(moment)
    }

    fn is_of_service(&self, moment: &StoredMoment) -> bool {
        let is_of_host = !moment.labels.contains_key(ROLLED_UP_LABEL);
        is_of_host && service_labels(&moment.labels).as_ref() == Some(&self.labels)
    }

    /// Returns the name of the sum, which no other group has: the service, other labels, and the
    /// end of the step. A name with a slash would be taken for a path, so some characters are
    /// written as in a URL.
    fn name(&self) -> String {
        let escaped = |text: &str| {
            text.chars().fold(String::new(), |mut to, c| {
                match c {
                    '/' | '%' | '@' | '=' => to.push_str(&format!("%{:02X}", c as u32)),
                    c if c.is_control() => to.push_str(&format!("%{:02X}", c as u32)),
                    c => to.push(c),
                }
                to
            })
        };
        let service = self.labels.get("service").map_or("", String::as_str);
        let others = self.labels.iter().filter(|(key, _)| *key != "service");
        let others = others.map(|(key, value)| format!(".{}={}", escaped(key), escaped(value)));
        let time = heapprof_report::time_utc(self.end).replace(' ', "_");
        format!("{}{}@{time}", escaped(service), others.collect::<String>())
    }
}

/// Fails if the selector leaves out hosts of a service, because the sum would not be the service's.
fn check_whole_service(
    plan: &PrunePlan,
    selector: &str,
    chosen: &[StoredMoment],
    all: &[StoredMoment],
) -> Result<()> {
    let chosen: BTreeSet<&str> = chosen.iter().map(|moment| &*moment.name).collect();
    // This map is mostly empty.
    let mut left_out: BTreeMap<BTreeMap<String, String>, Vec<&StoredMoment>> = BTreeMap::new();
    for moment in all.iter().filter(|m| !chosen.contains(&*m.name)) {
        if let Some(labels) = service_labels(&moment.labels) {
            left_out.entry(labels).or_default().push(moment);
        }
    }
    for group in plan.together.keys() {
        let of_service = left_out.get(&group.labels).into_iter().flatten();
        if let Some(moment) = of_service.copied().find(|moment| group.has(moment)) {
            let service = group.labels.get("service").map_or("", String::as_str);
            bail!(
                "{selector}: leaves out {} of the service {service}, so the sum would not be the \
                 service's; choose whole services for --roll-up, such as service={service}",
                moment.name
            );
        }
    }
    Ok(())
}

/// Returns the moments of each group that stand for the service at the end of the step. Moments of
/// a process that ended or was replaced before are left out.
fn moments_at_step_end<'a>(
    plan: &'a PrunePlan,
    moments: &[StoredMoment],
) -> Vec<(&'a RollupGroup, Vec<StoredMoment>)> {
    let mut groups = plan.together.iter().peekable();
    let mut all = Vec::new();
    // The groups of a service follow each other.
    while let Some((first, _)) = groups.peek() {
        let labels = &first.labels;
        let of_service = moments.iter().filter(|moment| first.is_of_service(moment));
        let of_service: Vec<StoredMoment> = of_service.cloned().collect();
        let processes = SeriesProcesses::from_moments(&of_service);
        while let Some((group, of_group)) = groups.next_if(|(group, _)| group.labels == *labels) {
            let newest = of_group.iter().map(|&at| moments[at].time_nanos).max();
            let there = processes.moments_at(newest.unwrap_or(0));
            let names: BTreeSet<&str> = there.iter().map(|&at| &*of_service[at].name).collect();
            let of_group = of_group.iter().map(|&at| &moments[at]);
            let there = of_group.filter(|moment| names.contains(&*moment.name));
            all.push((group, there.cloned().collect()));
        }
    }
    all
}

/// The moments that are to be removed or put together.
#[derive(Debug, Default, PartialEq, Eq)]
struct PrunePlan {
    /// Positions of the moments that are removed.
    removed: Vec<usize>,
    /// Positions of the removed moments that are put together, by group.
    together: BTreeMap<RollupGroup, Vec<usize>>,
}

/// Decides which moments are removed, and which are put together. `moments` is in the order of
/// their times.
fn plan(moments: &[StoredMoment], keep: &[RetentionRule], rolls_up: bool, now: i64) -> PrunePlan {
    let nanos = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let mut rules = keep.to_vec();
    // Of the rules that a moment is young enough for, the one with the smallest age decides.
    rules.sort_by_key(|rule| (rule.age, rule.step));
    let mut plan = PrunePlan::default();
    let mut kept: BTreeSet<(usize, i64, i64)> = BTreeSet::new();
    for (at, moment) in moments.iter().enumerate().rev() {
        // The moment's age is not known.
        if moment.time_nanos == 0 {
            continue;
        }
        let age = now.saturating_sub(moment.time_nanos);
        let rule = rules.iter().position(|rule| age <= nanos(rule.age));
        let Some(rule) = rule else {
            plan.removed.push(at);
            continue;
        };
        let Some(step) = rules[rule].step.map(nanos).filter(|&step| step > 0) else {
            continue;
        };
        let place = moment.time_nanos.div_euclid(step);
        let end = (place + 1).saturating_mul(step);
        // A step is thinned out only when all of it is old enough.
        let young = rule
            .checked_sub(1)
            .map_or(0, |finer| nanos(rules[finer].age));
        if now.saturating_sub(end) < young {
            continue;
        }
        // The last moment of a process in a step stays.
        let is_kept = kept.insert((moment.process, step, place));
        let is_together = moment.labels.contains_key(ROLLED_UP_LABEL);
        // Values that only count what was allocated have no sum over processes that come and go.
        let has_sum = moment.types.iter().any(|t| !is_counter(&t.0));
        let service =
            service_labels(&moment.labels).filter(|_| rolls_up && !is_together && has_sum);
        match service {
            _ if !is_kept => plan.removed.push(at),
            None => {}
            Some(labels) => {
                plan.removed.push(at);
                let begin = end.saturating_sub(step);
                let group = RollupGroup { labels, begin, end };
                plan.together.entry(group).or_default().push(at);
            }
        }
    }
    plan.removed.reverse();
    plan.together.values_mut().for_each(|group| group.reverse());
    plan
}

/// Describes what the plan does, in the imperative.
fn describe_plan(plan: &PrunePlan, moments: &[StoredMoment]) -> String {
    let mut said = format!(
        "remove {} of {} profile{}",
        plan.removed.len(),
        moments.len(),
        if moments.len() == 1 { "" } else { "s" }
    );
    let parts: usize = plan.together.values().map(Vec::len).sum();
    if parts > 0 {
        said += &format!(
            ", and put {parts} of them together into {}",
            plan.together.len()
        );
    }
    said
}

/// Turns the description of a plan into the past tense.
fn to_past_tense(said: &str) -> String {
    said.replacen("remove ", "removed ", 1)
}
