//! `heapprof peek REGEX`: prints callers and callees.

use anyhow::{Result, bail};
use heapprof_analysis::{Query, TypeSelection, peek};
use heapprof_text::explain_shown_match;

use crate::args::MatchArgs;
use crate::context::{CommandContext, regex};

pub(super) fn run(context: &CommandContext, args: &MatchArgs) -> Result<()> {
    let wanted = regex(&args.regex, &args.profiles.profiles)?;
    let query = Query {
        sort: args.sort.sort,
        limit: context.limit(&args.limit, &args.report),
        ..args.question.query()
    };
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let sources = vec![context.sources.read(&names)?];
    let session = context.session(sources, &query, TypeSelection::Requested, |question| {
        question.with_neighbours_of(|name| wanted.is_match(name))
    })?;
    let report = peek(&session, &query)?;
    if report.rows.is_empty() {
        bail!(
            "{}: no function that has {} (after filters) matches {:?}{}",
            names.join(" + "),
            report.header.sample_type.r#type,
            args.regex,
            explain_shown_match(&wanted, report.places.iter().map(|place| &*place.function))
        );
    }
    context.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::peek(&report, style, out)?)
    })
}
