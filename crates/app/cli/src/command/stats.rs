//! `heapprof stats`: prints totals and sizes of a profile.

use anyhow::Result;
use heapprof_analysis::{TypeSelection, stats};

use crate::args::StatsArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &StatsArgs) -> Result<()> {
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let source = context.sources.read(&names)?;
    let session = context.ask(source, &args.question.query(), TypeSelection::All)?;
    let found = stats(&session)?;
    context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::stats(&found, style)?)
    })
}
