//! `heapprof timeline`: prints the heap over time, of one profile or of a series.

use anyhow::Result;
use heapprof_analysis::{Granularity, Query, TypeSelection, timeline};

use super::report::expand_names;
use crate::args::TimelineArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &TimelineArgs) -> Result<()> {
    let names = expand_names(
        &context.sources,
        &context.sources.or_newest(&args.profiles.profiles)?,
    )?;
    let sources = context.sources.read_each(&names)?;
    // The question is about whole profiles, so nothing is left out.
    let query = Query {
        granularity: Granularity::Functions,
        all_frames: true,
        ..Query::default()
    };
    let session = context.session(sources, &query, TypeSelection::All, |question| question)?;
    let found = timeline(&session)?;
    context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::timeline(&found, style)?)
    })
}
