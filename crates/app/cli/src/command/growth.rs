//! `heapprof growth SELECTOR`: lists functions or stacks by the growth of their live heap.

use anyhow::{Context, Result};
use heapprof_analysis::{Query, growth_sql, series_growth};

use super::CommandContext;
use crate::args::GrowthArgs;
use crate::{selection, stores};

pub(super) fn run(shared: &CommandContext, args: &GrowthArgs) -> Result<()> {
    let query = Query {
        sort: args.sort.sort,
        limit: shared.limit(&args.limit, &args.report),
        ..args.question.query()
    };
    let (store, moments) = stores::open(shared.sources.backend())?;
    let chosen = selection::choose(args.selector.as_deref().unwrap_or_default(), &moments)?;
    let report = series_growth(&*store, &chosen, &query, args.stacks);
    let (report, session) = report.with_context(|| chosen.name.clone())?;
    let names = || chosen.moments.iter().map(|moment| &*moment.name);
    if !args.stacks && selection::are_unique(names(), &moments) {
        shared.note_portable_query(&query, &report.sample_type, |asked| {
            Some(growth_sql(asked, &names().collect::<Vec<&str>>()))
        });
    }
    shared.finish(&args.report, &session, |style| {
        Ok(heapprof_report::growth(&report, query.granularity, style)?)
    })
}
