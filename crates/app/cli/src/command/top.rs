//! `heapprof top`: lists functions by the memory that they hold; with `--fail-if` also judges it.

use std::process::ExitCode;

use anyhow::Result;
use heapprof_analysis::{
    AllocationWrapper, CodePlace, Query, TypeSelection, own_code, top, top_sql, wrappers,
};
use heapprof_report::{ReportFormat, ReportStyle};

use super::gate::GateRules;
use crate::args::TopArgs;
use crate::context::{CommandContext, portable_statement};
use crate::output;

pub(super) fn run(context: &CommandContext, args: &TopArgs) -> Result<ExitCode> {
    let mut gate = GateRules::for_one_profile(&args.gate)?;
    let query = Query {
        sort: args.sort.sort,
        limit: context.limit(&args.limit, &args.report),
        ..args.question.query()
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let types = match args.wide || gate.names_a_type() {
        true => TypeSelection::All,
        false => TypeSelection::Requested,
    };
    let read = context.sources.read_selected(&names)?;
    let selected = read.selected;
    let session = context.ask(read.source, &query, types)?;
    let mut report = top(&session, 1, &query, args.wide)?;
    let portable = portable_statement(&query, &report.header.sample_type, |asked| {
        let names = selected?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Some(top_sql(asked, &names))
    });
    if matches!(
        args.report.format,
        ReportFormat::Text | ReportFormat::Markdown
    ) {
        report.wrappers = wrappers(&session, 1, &query)?;
        let counted = report.rows.iter().filter(|row| row.flat != 0);
        let places: Vec<&CodePlace> = counted.map(|row| &row.place).collect();
        // The memory of a proposed wrapper counts for its callers.
        let proposed = report.wrappers.iter().map(AllocationWrapper::pattern);
        let all: Vec<String> = query.wrappers.iter().cloned().chain(proposed).collect();
        let without = Query {
            wrappers: (!all.is_empty()).then(|| all.join("|")),
            ..query.clone()
        };
        report.own_code = own_code(&session, 1, &without, &places)?;
    }
    gate.judge("in it", |rule| Ok(rule.judge_profile(&session, 1, &query)?))?;
    let width = match args.width {
        Some(0) => None,
        Some(width) => Some(width),
        None => context
            .is_terminal(args.report.output.file())
            .then(output::console_columns),
    };
    let sources = context.source_files(&args.source);
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
