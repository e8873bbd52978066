//! `heapprof traces`: prints stacks one by one.

use anyhow::Result;
use heapprof_analysis::{Query, TypeSelection, traces};
use heapprof_report::TraceOrder;

use super::CommandContext;
use crate::args::TracesArgs;

pub(super) fn run(shared: &CommandContext, args: &TracesArgs) -> Result<()> {
    let query = Query {
        limit: shared.limit(&args.limit, &args.report),
        ..args.labels.applied(args.question.query())
    };
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let session = shared.ask(
        shared.sources.read(&names)?,
        &query,
        TypeSelection::Requested,
    )?;
    let report = traces(&session, &query)?;
    let order = match args.ascending {
        true => TraceOrder::Ascending,
        false => TraceOrder::Descending,
    };
    shared.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::traces(&report, order, style, out)?)
    })
}
