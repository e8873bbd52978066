//! `heapprof tree peek REGEX`: prints callers and callees.

use anyhow::Result;
use heapprof_analysis::Query;
use heapprof_page::PeekQuestion;

use crate::advice::note_question;
use crate::args::MatchArgs;
use crate::context::{CommandContext, regex, row_limit};

pub(super) fn run(context: &CommandContext, args: &MatchArgs) -> Result<()> {
    let question = PeekQuestion {
        wanted: regex(&args.regex, &args.profiles.profiles)?,
        query: Query {
            sort: args.sort.sort,
            limit: row_limit(&args.limit, args.report.output.file()),
            ..args.question.query_of_all_code()
        },
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = question.open(context.sources.read(&names)?, &note_question)?;
    let report = question.rows(&session, &names.join(" + "))?;
    context.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::peek(&report, style, out)?)
    })
}
