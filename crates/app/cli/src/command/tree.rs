//! `heapprof tree`: prints the call tree.

use anyhow::Result;
use heapprof_analysis::TreeOptions;
use heapprof_page::TreeQuestion;

use crate::advice::note_question;
use crate::args::TreeArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &TreeArgs) -> Result<()> {
    let question = TreeQuestion {
        query: args.question.query(),
        options: TreeOptions {
            reverse: args.reverse,
            least: args.min_percent / 100.0,
            most: None,
        },
        is_full: args.full,
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let session = question.open(context.sources.read(&names)?, &note_question)?;
    let report = question.rows(&session)?;
    context.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::tree(
            &report,
            question.is_full,
            style,
            out,
        )?)
    })
}
