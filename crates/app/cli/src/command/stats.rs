//! `heapprof info stats`: prints totals and sizes of a profile.

use anyhow::Result;
use heapprof_page::StatsQuestion;

use crate::advice::note_question;
use crate::args::StatsArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &StatsArgs) -> Result<()> {
    let question = StatsQuestion {
        query: args.question.query_of_all_code(),
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = question.open(context.sources.read(&names)?, &note_question)?;
    let found = question.rows(&session)?;
    context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::stats(&found, style)?)
    })
}
