//! `heapprof timeline`: prints the heap over time, of one profile or of a series.

use anyhow::Result;
use heapprof_analysis::{Granularity, Query, TypeSelection, timeline};

use super::CommandContext;
use super::report::expand_names;
use crate::args::TimelineArgs;

pub(super) fn run(shared: &CommandContext, args: &TimelineArgs) -> Result<()> {
    let names = expand_names(
        &shared.sources,
        &shared.sources.or_newest(&args.profiles.profiles)?,
    )?;
    let sources = shared.sources.read_each(&names)?;
    // The question is about whole profiles, so nothing is left out.
    let query = Query {
        granularity: Granularity::Functions,
        all_frames: true,
        ..Query::default()
    };
    let session = shared.session(sources, &query, TypeSelection::All, |question| question)?;
    let found = timeline(&session)?;
    shared.finish(&args.report, &session, |style| {
        Ok(heapprof_report::timeline(&found, style)?)
    })
}
