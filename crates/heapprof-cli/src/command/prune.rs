//! `heapprof prune SELECTOR --keep …`: old moments are thinned out, put together, or removed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use heapprof_analysis::{
    ROLLED_UP, Store, StoredMoment, chosen_of, is_counter, of_service, roll_up,
};

use super::{Shared, rm};
use crate::args::{Keep, PruneArgs};
use crate::backend::Backend;
use crate::{messages, now, selection, stores};

pub(super) fn run(shared: &Shared, args: &PruneArgs) -> Result<()> {
    let db = shared.sources.db();
    let named = || db.display().to_string();
    let (store, all) = stores::open(&Backend::Database(db.to_path_buf()))?;
    let moments = selection::choose(&args.selector, &all)?.moments;
    let mut plan = plan(&moments, &args.keep, args.roll_up, now::nanos());
    // What was loaded after its step was put together stays as it is.
    for moment in &all {
        if let Some(late) = plan.together.remove(&moment.name) {
            plan.removed.retain(|at| !late.contains(at));
            messages::note(&format!(
                "{}: was put together without {} profiles that were loaded later; they stay",
                moment.name,
                late.len()
            ));
        }
    }
    let said = said(&plan, &moments, args.roll_up);
    if args.dry_run {
        messages::note(&format!("{}: would {said}", db.display()));
        return Ok(());
    }
    let mut added = Vec::new();
    for (name, group) in &plan.together {
        let group: Vec<StoredMoment> = group.iter().map(|&at| moments[at].clone()).collect();
        added.push(roll_up(&*store, name, &chosen_of(name, group)).with_context(named)?);
    }
    drop(store);
    let removed = plan.removed.iter();
    let removed: Vec<String> = removed.map(|&at| moments[at].name.clone()).collect();
    if !removed.is_empty() {
        let mut store = Store::open_to_write(db).with_context(named)?;
        store.replace(&added, &removed).with_context(named)?;
        rm::give_back(&mut store, db);
    }
    messages::note(&format!("{}: {}", db.display(), past(&said)));
    Ok(())
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// The moments that go, by position.
    removed: Vec<usize>,
    /// The profiles that moments are put together into, by name.
    together: BTreeMap<String, Vec<usize>>,
}

/// Which moments go, and which are put together. Moments are in the order of their times.
fn plan(moments: &[StoredMoment], keep: &[Keep], rolls_up: bool, now: i64) -> Plan {
    let nanos = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let mut rules = keep.to_vec();
    // The finest rule that a moment is young enough for decides.
    rules.sort_by_key(|rule| (rule.age, rule.step));
    let mut plan = Plan::default();
    let mut kept: BTreeSet<(usize, i64, i64)> = BTreeSet::new();
    for (at, moment) in moments.iter().enumerate().rev() {
        // Nobody knows how old it is.
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
        // A step is looked at when all of it is old enough.
        let young = rule
            .checked_sub(1)
            .map_or(0, |finer| nanos(rules[finer].age));
        if now.saturating_sub(end) < young {
            continue;
        }
        // The last one of a process in a step stays.
        let is_kept = kept.insert((moment.process, step, place));
        let is_together = moment.labels.contains_key(ROLLED_UP);
        // Values that only count what was allocated have no sum over processes that come and go.
        let has_sum = moment.types.iter().any(|t| !is_counter(&t.0));
        let service = of_service(&moment.labels).filter(|_| rolls_up && !is_together && has_sum);
        match service {
            _ if !is_kept => plan.removed.push(at),
            None => {}
            Some(labels) => {
                plan.removed.push(at);
                plan.together
                    .entry(name(&labels, end))
                    .or_default()
                    .push(at);
            }
        }
    }
    plan.removed.reverse();
    plan.together.values_mut().for_each(|group| group.reverse());
    plan
}

/// The name of what is put together: the values of its labels, the service first, and the end of
/// its step. A name with a slash would be taken for a path.
fn name(labels: &BTreeMap<String, String>, end: i64) -> String {
    let service = labels.get("service").into_iter();
    let others = labels.iter().filter(|(key, _)| *key != "service");
    let values: Vec<&str> = service
        .chain(others.map(|(_, value)| value))
        .map(String::as_str)
        .collect();
    let time = heapprof_report::time_utc(end).replace(' ', "_");
    let name = format!("{}@{time}", values.join("."));
    name.replace(|c: char| c == '/' || c.is_control(), "_")
}

/// What the plan does, in the words of an order.
fn said(plan: &Plan, moments: &[StoredMoment], rolls_up: bool) -> String {
    let mut said = format!(
        "remove {} of {} profiles",
        plan.removed.len(),
        moments.len()
    );
    if rolls_up {
        said += &format!(
            " and put some of them together into {}",
            plan.together.len()
        );
    }
    said
}

/// The same, when it is done.
fn past(said: &str) -> String {
    said.replacen("remove ", "removed ", 1)
}
