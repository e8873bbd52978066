//! `heapprof stats`: prints totals and sizes of a profile.

use anyhow::Result;
use heapprof_analysis::{TypeSelection, stats};

use super::CommandContext;
use crate::args::StatsArgs;

pub(super) fn run(shared: &CommandContext, args: &StatsArgs) -> Result<()> {
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let source = shared.sources.read(&names)?;
    let session = shared.ask(source, &args.question.query(), TypeSelection::All)?;
    let found = stats(&session)?;
    shared.finish(&args.report, &session, |style| {
        Ok(heapprof_report::stats(&found, style)?)
    })
}
