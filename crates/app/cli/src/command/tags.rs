//! `heapprof tags`: prints the labels of a profile.

use anyhow::Result;
use heapprof_analysis::{TypeSelection, tags};

use crate::args::TagsArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &TagsArgs) -> Result<()> {
    let query = args.labels.applied(args.question.query());
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = context.ask(
        context.sources.read(&names)?,
        &query,
        TypeSelection::Requested,
    )?;
    let report = tags(&session, &query)?;
    context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::tags(&report, style)?)
    })
}
