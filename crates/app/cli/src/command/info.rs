//! `heapprof info`: prints the facts about a profile; with `--fail-if` also judges its totals.

use std::process::ExitCode;

use anyhow::Result;
use heapprof_analysis::{Granularity, Query, TypeSelection, info, stats};
use heapprof_report::ReportFormat;

use super::gate::GateRules;
use crate::args::InfoArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &InfoArgs) -> Result<ExitCode> {
    let mut gate = GateRules::for_one_profile(&args.gate)?;
    // This report shows facts: no frame is cut, no sample is left out, and stacks that differ in
    // anything are counted as two.
    let query = Query {
        all_frames: true,
        granularity: Granularity::Addresses,
        ..Query::default()
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = context.ask(context.sources.read(&names)?, &query, TypeSelection::All)?;
    let report = info(&session)?;
    let stats = match args.report.format {
        ReportFormat::Json => Some(stats(&session)?),
        _ => None,
    };
    gate.judge("in it", |rule| Ok(rule.judge_profile(&session, 1, &query)?))?;
    let written = context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::info(&report, stats.as_ref(), style)?)
    });
    gate.end(written, heapprof_report::value_line)
}
