//! `heapprof info tags`: prints the labels of a profile.

use anyhow::Result;
use heapprof_page::TagsQuestion;

use crate::advice::note_question;
use crate::args::TagsArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &TagsArgs) -> Result<()> {
    let question = TagsQuestion {
        query: args.labels.applied(args.question.query_of_all_code()),
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = question.open(context.sources.read(&names)?, &note_question)?;
    let report = question.rows(&session)?;
    context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::tags(&report, style)?)
    })
}
