//! `heapprof tree traces`: prints stacks one by one.

use anyhow::Result;
use heapprof_analysis::Query;
use heapprof_page::TracesQuestion;
use heapprof_report::TraceOrder;

use crate::advice::note_question;
use crate::args::TracesArgs;
use crate::context::{CommandContext, row_limit};

pub(super) fn run(context: &CommandContext, args: &TracesArgs) -> Result<()> {
    let question = TracesQuestion {
        query: Query {
            limit: row_limit(&args.limit, args.report.output.file()),
            ..args.labels.applied(args.question.query_of_all_code())
        },
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = question.open(context.sources.read(&names)?, &note_question)?;
    let report = question.rows(&session)?;
    let order = match args.ascending {
        true => TraceOrder::Ascending,
        false => TraceOrder::Descending,
    };
    context.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::traces(&report, order, style, out)?)
    })
}
