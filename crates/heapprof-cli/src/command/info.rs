//! `heapprof info`: the facts about a profile.

use anyhow::Result;
use heapprof_analysis::{Granularity, Query, Types, info};

use super::Shared;
use crate::args::InfoArgs;

pub(super) fn run(shared: &Shared, args: &InfoArgs) -> Result<()> {
    // Facts, so no frame is cut, no sample left out, and stacks that differ in anything are two.
    let query = Query {
        all_frames: true,
        granularity: Granularity::Addresses,
        ..Query::default()
    };
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let session = shared.ask(shared.sources.read(&names)?, &query, Types::All)?;
    let report = info(&session)?;
    shared.finish(&args.report, &session, |style| {
        Ok(heapprof_report::info(&report, style)?)
    })
}
