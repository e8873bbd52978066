//! `heapprof list REGEX`: prints annotated source, or annotated assembly.

use anyhow::Result;
use heapprof_analysis::Query;
use heapprof_page::{BinaryFolders, ListQuestion, SourceFiles};
use heapprof_report::ListAssembly;

use crate::advice::note_question;
use crate::args::{BINARY_ADVICE, ListArgs};
use crate::context::{CommandContext, regex, row_limit, statements};
use crate::{messages, output};

pub(super) fn run(context: &CommandContext, args: &ListArgs) -> Result<()> {
    let wanted = regex(&args.regex, &args.profiles.profiles)?;
    let file = args.report.output.file();
    let query = Query {
        limit: row_limit(&args.limit, file),
        ..args.question.query_of_all_code()
    };
    let question = ListQuestion::new(query, wanted)?;
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let source = context.sources.read(&names)?;
    let sessions = question.open(source.clone(), &note_question)?;
    let report = question.rows(&sessions, &names.join(" + "))?;
    let folders = args.source.folders();
    let sources = SourceFiles::new(&folders);
    let read = |file: &str| sources.lines(file);
    let style = context.style(&args.report);
    let text = if args.report.show_sql {
        statements(&sessions.functions) + &statements(&sessions.lines)
    } else if args.asm {
        let binaries = BinaryFolders::new(&args.debug_dir, BINARY_ADVICE);
        let assembly = question.assembly(source, &report, &binaries)?;
        let code = ListAssembly::new(&assembly, binaries.advice);
        code.each_note(&report, &style, messages::note);
        heapprof_report::list_assembly(&report, &code, &read, &style)?
    } else {
        heapprof_report::list(&report, &read, &style)?
    };
    output::text(file, &text)
}
