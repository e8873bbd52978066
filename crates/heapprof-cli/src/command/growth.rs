//! `heapprof growth SELECTOR`: functions and stacks by how what they hold grew.

use anyhow::{Context, Result};
use heapprof_analysis::{Query, series_growth};

use super::Shared;
use crate::args::GrowthArgs;
use crate::selection;

pub(super) fn run(shared: &Shared, args: &GrowthArgs) -> Result<()> {
    let query = Query {
        sort: args.sort.sort,
        limit: shared.limit(&args.limit, &args.report),
        ..args.question.query()
    };
    let db = shared.sources.db();
    let (store, moments) = selection::open(db)?;
    let chosen = selection::choose(args.selector.as_deref().unwrap_or_default(), &moments)?;
    let report = series_growth(&store, &chosen, &query, args.stacks);
    let (report, session) = report.with_context(|| chosen.name.clone())?;
    shared.finish(&args.report, &session, |style| {
        Ok(heapprof_report::growth(&report, query.granularity, style)?)
    })
}
