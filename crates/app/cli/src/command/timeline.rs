//! `heapprof timeline`: prints the heap over time, of one profile or of a series.

use anyhow::Result;

use super::report::expand_names;
use crate::args::TimelineArgs;
use crate::context::CommandContext;
use crate::messages;
use crate::question::TimelineQuestion;

pub(super) fn run(context: &CommandContext, args: &TimelineArgs) -> Result<()> {
    let names = expand_names(&context.sources.or_newest(&args.profiles.profiles)?)?;
    let sources = context.sources.read_each(&names)?;
    let session = TimelineQuestion.open(sources, &messages::note)?;
    let found = TimelineQuestion.rows(&session)?;
    context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::timeline(&found, style)?)
    })
}
