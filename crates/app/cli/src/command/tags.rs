//! `heapprof tags`: prints the labels of a profile.

use anyhow::Result;
use heapprof_analysis::{TypeSelection, tags};

use super::CommandContext;
use crate::args::TagsArgs;

pub(super) fn run(shared: &CommandContext, args: &TagsArgs) -> Result<()> {
    let query = args.labels.applied(args.question.query());
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let session = shared.ask(
        shared.sources.read(&names)?,
        &query,
        TypeSelection::Requested,
    )?;
    let report = tags(&session, &query)?;
    shared.finish(&args.report, &session, |style| {
        Ok(heapprof_report::tags(&report, style)?)
    })
}
