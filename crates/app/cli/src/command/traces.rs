//! `heapprof traces`: prints stacks one by one.

use anyhow::Result;
use heapprof_analysis::{Query, TypeSelection, traces};
use heapprof_report::TraceOrder;

use crate::args::TracesArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &TracesArgs) -> Result<()> {
    let query = Query {
        limit: context.limit(&args.limit, &args.report),
        ..args.labels.applied(args.question.query())
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = context.ask(
        context.sources.read(&names)?,
        &query,
        TypeSelection::Requested,
    )?;
    let report = traces(&session, &query)?;
    let order = match args.ascending {
        true => TraceOrder::Ascending,
        false => TraceOrder::Descending,
    };
    context.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::traces(&report, order, style, out)?)
    })
}
