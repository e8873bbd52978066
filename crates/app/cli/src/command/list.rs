//! `heapprof list REGEX`: prints annotated source.

use anyhow::Result;
use heapprof_analysis::Query;
use heapprof_page::{ListQuestion, SourceFiles};

use crate::advice::note_question;
use crate::args::ListArgs;
use crate::context::{CommandContext, regex, row_limit, statements};
use crate::output;

pub(super) fn run(context: &CommandContext, args: &ListArgs) -> Result<()> {
    let wanted = regex(&args.regex, &args.profiles.profiles)?;
    let query = Query {
        limit: row_limit(&args.limit, args.report.output.file()),
        ..args.question.query_of_all_code()
    };
    let question = ListQuestion::new(query, wanted)?;
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let sessions = question.open(context.sources.read(&names)?, &note_question)?;
    let report = question.rows(&sessions, &names.join(" + "))?;
    let folders = args.source.folders();
    let sources = SourceFiles::new(&folders);
    let read = |file: &str| sources.lines(file);
    let text = heapprof_report::list(&report, &read, &context.style(&args.report))?;
    let file = args.report.output.file();
    match args.report.show_sql {
        true => {
            let [functions, lines] = [&sessions.functions, &sessions.lines].map(statements);
            output::text(file, &(functions + &lines))
        }
        false => output::text(file, &text),
    }
}
