//! `heapprof list REGEX`: prints annotated source.

use anyhow::{Result, bail};
use heapprof_analysis::{Granularity, Query, TypeSelection, list};
use heapprof_text::explain_shown_match;

use crate::args::ListArgs;
use crate::context::{CommandContext, regex, statements};

pub(super) fn run(context: &CommandContext, args: &ListArgs) -> Result<()> {
    let wanted = regex(&args.regex, &args.profiles.profiles)?;
    let asked = args.question.query();
    if asked.granularity != Granularity::Functions {
        bail!("list shows lines of functions; --granularity has no effect here");
    }
    let query = |granularity| Query {
        granularity,
        limit: context.limit(&args.limit, &args.report),
        ..asked.clone()
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let source = context.sources.read(&names)?;
    let by_function = query(Granularity::FileFunctions);
    let functions = context.ask(source.clone(), &by_function, TypeSelection::Requested)?;
    // The notes on filters were printed already.
    let lines = heapprof_analysis::ProfileQuestion::new(
        vec![source],
        &query(Granularity::Lines),
        TypeSelection::Requested,
    )?;
    let lines = heapprof_analysis::AnalysisSession::new(lines)?;
    let report = list(&functions, &lines, &by_function, |name| {
        wanted.is_match(name)
    })?;
    if report.rows.is_empty() {
        let whole = Query {
            limit: None,
            ..by_function
        };
        let all = list(&functions, &lines, &whole, |_| true)?;
        let all = all.rows.iter().map(|row| &*row.function);
        bail!(
            "{}: no function that has {} (after filters) matches {:?}{}",
            names.join(" + "),
            report.header.sample_type.r#type,
            args.regex,
            explain_shown_match(&wanted, all)
        );
    }
    let sources = context.source_files(&args.source);
    let read = |file: &str| sources.lines(file);
    let text = heapprof_report::list(&report, &read, &context.style(&args.report))?;
    let file = args.report.output.file();
    match args.report.show_sql {
        true => context.text(file, &(statements(&functions) + &statements(&lines))),
        false => context.text(file, &text),
    }
}
