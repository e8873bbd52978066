//! `heapprof db prune SELECTOR --keep …`: thins out, merges, or removes old moments.

use anyhow::{Result, bail};
use heapprof_stores::{RetentionPlan, StoreBackend, choose};

use super::rm;
use crate::args::PruneArgs;
use crate::context::CommandContext;
use crate::messages;
use heapprof_process::clock;

pub(super) fn run(context: &CommandContext, args: &PruneArgs) -> Result<()> {
    let db = context.sources.db();
    let (store, all) = heapprof_stores::open(&StoreBackend::Database(db.to_path_buf()))?;
    let now = clock::nanos();
    let moments = choose(&args.selector, now, &all)?.moments;
    let mut plan = RetentionPlan::new(&moments, &args.keep, args.roll_up, now);
    for sum in plan.leave_late_moments(&all) {
        let (they, stay) = match sum.late {
            1 => ("1 profile was".to_string(), "it stays"),
            n => (format!("{n} profiles were"), "they stay"),
        };
        messages::note(&format!(
            "{}: {they} loaded too late to be combined into it; {stay}",
            sum.name
        ));
    }
    // The sum would not be the service's.
    if let Some(gap) = plan.find_gap(&moments, &all) {
        let service = gap.service;
        bail!(
            "{}: leaves out {} of the service {service}, so the sum would not cover the whole \
             service; choose whole services for --roll-up, such as service={service}",
            args.selector,
            gap.moment
        );
    }
    let said = describe_plan(&plan, moments.len());
    if args.dry_run {
        messages::note(&format!("{}: would {said}", db.display()));
        return Ok(());
    }
    if let Some(mut store) = plan.carry_out(&moments, store, db)? {
        rm::give_back(&mut store, db);
    }
    messages::note(&format!("{}: {}", db.display(), to_past_tense(&said)));
    Ok(())
}

/// Describes what the plan does with `count` moments, in the imperative.
fn describe_plan(plan: &RetentionPlan, count: usize) -> String {
    let s = if count == 1 { "" } else { "s" };
    let mut said = format!("remove {} of {count} profile{s}", plan.removed());
    if plan.parts() > 0 {
        said += &format!(
            ", and put {} of them together into {}",
            plan.parts(),
            plan.sums()
        );
    }
    said
}

/// Turns the description of a plan into the past tense.
fn to_past_tense(said: &str) -> String {
    said.replacen("remove ", "removed ", 1)
}
