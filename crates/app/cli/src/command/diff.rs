//! `heapprof diff BEFORE AFTER`: reports what changed; with `--fail-if` also judges it.

use std::process::ExitCode;

use anyhow::{Result, bail};
use heapprof_analysis::{Query, portable::diff_sql};
use heapprof_page::{DiffQuestion, portable_statement};
use heapprof_report::plural;

use super::gate::GateRules;
use crate::advice::note_question;
use crate::args::DiffArgs;
use crate::context::{CommandContext, row_limit};
use crate::messages;

pub(super) fn run(context: &CommandContext, args: &DiffArgs) -> Result<ExitCode> {
    let query = Query {
        sort: args.sort.sort,
        limit: row_limit(&args.limit, args.report.output.file()),
        ..args.question.judged_query(!args.gate.fail_if.is_empty())
    };
    let question = DiffQuestion::new(query, args.normalize)?;
    let query = question.query();
    // Rules are read first, so that the user does not wait for two profiles if a rule can't be
    // read.
    let mut gate = GateRules::new(&args.gate)?;
    let of_total = gate.rules().find(|(rule, _)| rule.sample_type().is_some());
    if let Some((_, rule)) = of_total
        && args.normalize
        && query.filters.active_options().is_empty()
    {
        bail!(
            "--fail-if {rule:?}: --normalize makes both totals equal, so this rule could never be \
             true"
        );
    }
    let (before, after) = sides(args)?;
    let sources = [
        context.sources.read_selected(&before)?,
        context.sources.read_selected(&after)?,
    ];
    let [selected_before, selected_after] = sources.each_ref().map(|read| read.selected.clone());
    let sources = sources.map(|read| read.source);
    let session = question.open(sources, gate.names_a_type(), &note_question)?;
    let report = question.rows(&session)?;
    let portable = portable_statement(query, &report.before.sample_type, |asked| {
        if args.normalize {
            return None;
        }
        let (before, after) = (selected_before?, selected_after?);
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        Some(diff_sql(asked, &before, &after))
    });
    if before.len() != after.len() && !args.normalize {
        let count = |side: &[String]| plural(&side.len().to_string(), "profile");
        messages::note(&format!(
            "the sum of {} is compared with that of {}; if they are recordings of the same \
             program, give the same number on each side",
            count(&before),
            count(&after)
        ));
    }
    question.explain_rows(&session, &report, &note_question);
    let is_sampled = report.before.sampled.is_some() || report.after.sampled.is_some();
    let of_peak = gate.rules().find(|(rule, _)| rule.is_about_peak(&report));
    if is_sampled && let Some((_, text)) = of_peak {
        messages::note(&format!(
            "--fail-if {text:?}: the peak of a sampled profile has no error range, so the rule \
             takes it as exact; record --exact makes it exact"
        ));
    }
    for (rule, text) in gate.rules() {
        if let Some(other) = rule.for_peaks(&report) {
            messages::note(&format!(
                "--fail-if {text:?} compares what is in use at the end, but most memory was freed \
                 by then; -t peak --fail-if {other:?} compares the peaks"
            ));
        }
    }
    gate.judge("on either side", |rule| {
        let verdict = rule.judge_diff(&report)?;
        Ok(rule.has_subject(&report).then_some(verdict))
    })?;
    let written = context.finish_portable(&args.report, &session, portable, |style| {
        let broken = gate.in_report(&args.report, style);
        Ok(heapprof_report::diff(&report, query.limit, broken, style)?)
    });
    gate.end(written, heapprof_report::violation_line)
}

/// Returns the profiles before and after, from the arguments and from --before and --after.
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
                bail!("diff compares two profiles, but only {one} is given; give BEFORE and AFTER")
            }
            (false, false) => {
                bail!("{one} could belong to either side; use --before or --after for it")
            }
        },
        _ if before.is_empty() || after.is_empty() => {
            bail!("diff compares two profiles; give BEFORE and AFTER")
        }
        _ => {}
    }
    let stdin = before.iter().chain(&after).filter(|n| *n == "-").count();
    if stdin > 1 {
        bail!("- (stdin) can be read only once");
    }
    Ok((before, after))
}
