//! `heapprof info`: prints the facts about a profile; with `--fail-if` also judges its totals.

use std::process::ExitCode;

use anyhow::Result;
use heapprof_analysis::stats::stats;
use heapprof_page::InfoQuestion;
use heapprof_report::ReportFormat;

use super::gate::GateRules;
use crate::advice::note_question;
use crate::args::InfoArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &InfoArgs) -> Result<ExitCode> {
    let mut gate = GateRules::for_one_profile(&args.gate)?;
    let question = InfoQuestion::default();
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = question.open(context.sources.read(&names)?, &note_question)?;
    let report = question.rows(&session)?;
    let stats = match args.report.format {
        ReportFormat::Json => Some(stats(&session)?),
        _ => None,
    };
    gate.judge("in it", |rule| {
        Ok(rule.judge_profile(&session, 1, &question.query)?)
    })?;
    let written = context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::info(&report, stats.as_ref(), style)?)
    });
    gate.end(written, heapprof_report::value_line)
}
