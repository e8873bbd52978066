//! `heapprof top`: lists functions by the memory that they hold; with `--fail-if` also judges it.

use std::process::ExitCode;

use anyhow::Result;
use heapprof_analysis::{Query, portable::top_sql, top::add_code_hints};
use heapprof_page::{SourceFiles, TopQuestion, portable_statement};
use heapprof_report::{ReportFormat, ReportStyle};

use super::gate::GateRules;
use crate::advice::note_question;
use crate::args::TopArgs;
use crate::context::{CommandContext, row_limit, screen_width};

pub(super) fn run(context: &CommandContext, args: &TopArgs) -> Result<ExitCode> {
    let mut gate = GateRules::for_one_profile(&args.gate)?;
    let question = TopQuestion {
        query: Query {
            sort: args.sort.sort,
            limit: row_limit(&args.limit, args.report.output.file()),
            ..args.question.judged_query(!args.gate.fail_if.is_empty())
        },
        is_wide: args.wide,
    };
    let query = &question.query;
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let read = context.sources.read_selected(&names)?;
    let selected = read.selected;
    let session = question.open(read.source, gate.names_a_type(), &note_question)?;
    let mut report = question.rows(&session)?;
    let portable = portable_statement(query, &report.header.sample_type, |asked| {
        let names = selected?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Some(top_sql(asked, &names))
    });
    if matches!(
        args.report.format,
        ReportFormat::Text | ReportFormat::Markdown
    ) {
        add_code_hints(&session, query, &mut report)?;
    }
    gate.judge("in it", |rule| Ok(rule.judge_profile(&session, 1, query)?))?;
    let width = match args.width {
        Some(0) => None,
        Some(width) => Some(width),
        None => screen_width(args.report.output.file()),
    };
    let folders = args.source.folders();
    let sources = SourceFiles::new(&folders);
    let written = context.finish_portable(&args.report, &session, portable, |style| {
        let style = &ReportStyle {
            width,
            ..style.clone()
        };
        Ok(heapprof_report::top(&report, style, &|file, line| {
            sources.line(file, line)
        })?)
    });
    gate.end(written, heapprof_report::value_line)
}
