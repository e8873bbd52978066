//! `heapprof growth timeline`: prints the heap over time, of one profile or of a series.

use anyhow::Result;
use heapprof_page::TimelineQuestion;

use super::report::expand_names;
use crate::advice::note_question;
use crate::args::TimelineArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &TimelineArgs) -> Result<()> {
    let names = expand_names(&context.sources.or_newest(&args.profiles.profiles)?)?;
    let sources = context.sources.read_each(&names)?;
    let session = TimelineQuestion.open(sources, &note_question)?;
    let found = TimelineQuestion.rows(&session)?;
    context.finish(&args.report, &session, |style| {
        Ok(heapprof_report::timeline(&found, style)?)
    })
}
