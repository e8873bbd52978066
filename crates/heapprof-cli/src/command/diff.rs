//! `heapprof diff BEFORE AFTER`: what changed; with `--fail-if` also whether that is too much.

use std::process::ExitCode;

use anyhow::{Result, bail};
use heapprof_analysis::{Broken, Error, Query, Rule, Session, Types, agree, diff};

use super::Shared;
use crate::args::DiffArgs;
use crate::{messages, output};

pub(super) fn run(shared: &Shared, args: &DiffArgs) -> Result<ExitCode> {
    if args.question.query().relative_percentages {
        bail!("diff shows growth, no shares of a total; --relative-percentages has no say here");
    }
    // Rules first: a rule that can't be read must not cost the reading of two profiles.
    let rules = args
        .fail_if
        .iter()
        .map(|r| Rule::parse(r))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(rule) = args
        .fail_if
        .iter()
        .zip(&rules)
        .find(|(_, r)| r.sample_type().is_some())
        && args.normalize
        && args.question.query().filters.active().is_empty()
    {
        bail!(
            "--fail-if {:?}: --normalize makes both totals equal, so this rule could never break",
            rule.0
        );
    }
    let (before, after) = sides(args)?;
    let query = Query {
        sort: args.sort.sort,
        limit: shared.limit(&args.limit, &args.report),
        ..args.question.query()
    };
    let (mut session, numbers) = sessions(shared, &before, &after, &query, &rules, true)?;
    let report = match diff(&session, numbers, &query, args.normalize) {
        // Stored totals stay in their units and at their addresses; the profiles themselves can be brought to the same.
        Err(Error::Unlike(_)) if session.is_stored() => None,
        Ok(report) if session.is_stored() && report.has_addresses() => None,
        report => Some(shared.sources.told(&session, report)?),
    };
    let report = match report {
        Some(report) => report,
        None => {
            let (read, numbers) = sessions(shared, &before, &after, &query, &rules, false)?;
            session = read;
            diff(&session, numbers, &query, args.normalize)?
        }
    };
    let mut broken: Vec<Broken> = Vec::new();
    for (rule, text) in rules.iter().zip(&args.fail_if) {
        broken.extend(rule.broken(&report)?);
        if !rule.speaks_of_something(&report) {
            messages::note(&format!(
                "--fail-if {text:?} matches no function on either side"
            ));
        }
    }
    let written = shared.finish(&args.report, &session, |style| {
        Ok(heapprof_report::diff(&report, query.limit, &broken, style)?)
    });
    match written {
        // Who stops reading the report still gets the verdict.
        Err(error) if output::is_broken_pipe(&error) => {}
        written => written?,
    }
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for broken in &broken {
        messages::note(&format!(
            "failed: {}",
            heapprof_report::broken_line(broken, &report)
        ));
    }
    Ok(ExitCode::from(1))
}

/// The profiles of each side: two arguments, or what --before and --after say beside them.
fn sides(args: &DiffArgs) -> Result<(Vec<String>, Vec<String>)> {
    let (mut before, mut after) = (args.before.clone(), args.after.clone());
    match &args.profiles[..] {
        [b, a] => {
            before.insert(0, b.clone());
            after.insert(0, a.clone());
        }
        [one] => match (before.is_empty(), after.is_empty()) {
            (true, false) => before.push(one.clone()),
            (false, true) => after.push(one.clone()),
            (true, true) => {
                bail!("diff compares two profiles, only {one} is named; name BEFORE and AFTER")
            }
            (false, false) => {
                bail!("{one} could belong to either side; use --before or --after for it")
            }
        },
        _ if before.is_empty() || after.is_empty() => {
            bail!("diff compares two profiles; name BEFORE and AFTER")
        }
        _ => {}
    }
    let stdin = before.iter().chain(&after).filter(|n| *n == "-").count();
    if stdin > 1 {
        bail!("- (stdin) can be read only once");
    }
    Ok((before, after))
}

fn sessions(
    shared: &Shared,
    before: &[String],
    after: &[String],
    query: &Query,
    rules: &[Rule],
    stored: bool,
) -> Result<(Session, [i64; 2])> {
    if let ([b], [a], true) = (before, after, stored && query.is_plain())
        && let Some((session, numbers)) = shared.sources.stored_session(&[b, a])?
    {
        return Ok((session, [numbers[0], numbers[1]]));
    }
    let (mut before, mut after) = (shared.sources.read(before)?, shared.sources.read(after)?);
    agree(&mut before, &mut after)?;
    let sources = vec![before, after];
    let others = rules.iter().any(|rule| rule.sample_type().is_some());
    let types = if others { Types::All } else { Types::One };
    Ok((shared.session(sources, query, types, |q| q)?, [1, 2]))
}
