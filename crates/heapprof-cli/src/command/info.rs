//! `heapprof info`: the facts about a profile.

use anyhow::Result;
use heapprof_analysis::{Query, Types, info};

use super::Shared;
use crate::args::InfoArgs;

pub(super) fn run(shared: &Shared, args: &InfoArgs) -> Result<()> {
    // Facts, so no frame is cut and no sample left out.
    let query = Query {
        all_frames: true,
        ..Query::default()
    };
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let session = shared.ask(shared.sources.read(&names)?, &query, Types::All)?;
    let report = info(&session)?;
    shared.finish(&args.report, &session, |style| {
        Ok(heapprof_report::info(&report, style)?)
    })
}
