//! `heapprof growth SELECTOR`: lists functions or stacks by the growth of their live heap.

use anyhow::{Context, Result};
use heapprof_analysis::{Query, portable::growth_sql, series::series_growth};
use heapprof_process::clock;
use heapprof_stores::{are_unique, choose};

use crate::args::GrowthArgs;
use crate::context::{CommandContext, row_limit};
use heapprof_page::portable_statement;

pub(super) fn run(context: &CommandContext, args: &GrowthArgs) -> Result<()> {
    let query = Query {
        sort: args.sort.sort,
        limit: row_limit(&args.limit, args.report.output.file()),
        ..args.question.query()
    };
    let (store, moments) = heapprof_stores::open(context.sources.backend())?;
    let selector = args.selector.as_deref().unwrap_or_default();
    let chosen = choose(selector, clock::nanos(), &moments)?;
    let report = series_growth(&*store, &chosen, &query, args.stacks);
    let (report, session) = report.with_context(|| chosen.name.clone())?;
    let names = || chosen.moments.iter().map(|moment| &*moment.name);
    let is_portable = !args.stacks && are_unique(names(), &moments);
    let portable = portable_statement(&query, &report.sample_type, |asked| {
        is_portable.then(|| growth_sql(asked, &names().collect::<Vec<&str>>()))
    });
    context.finish_portable(&args.report, &session, portable, |style| {
        Ok(heapprof_report::growth(&report, query.granularity, style)?)
    })
}
