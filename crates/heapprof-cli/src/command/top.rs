//! `heapprof top`: functions by the memory they hold.

use anyhow::Result;
use heapprof_analysis::{Query, Types, top};
use heapprof_report::Style;

use super::Shared;
use crate::args::TopArgs;
use crate::output;

pub(super) fn run(shared: &Shared, args: &TopArgs) -> Result<()> {
    let query = Query {
        sort: args.sort.sort,
        limit: shared.limit(&args.limit, &args.report),
        ..args.question.query()
    };
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let stored = match (&names[..], query.is_plain()) {
        // Stored totals answer it without reading the profile.
        ([name], true) => shared.sources.stored_session(&[name])?,
        _ => None,
    };
    let (session, profile) = match stored {
        Some((session, numbers)) => (session, numbers[0]),
        None => {
            let types = if args.wide { Types::All } else { Types::One };
            let source = shared.sources.read(&names)?;
            (shared.ask(source, &query, types)?, 1)
        }
    };
    let report = top(&session, profile, &query, args.wide);
    let report = shared.sources.told(&session, report)?;
    let width = match args.width {
        Some(0) => None,
        Some(width) => Some(width),
        None => output::is_terminal(args.report.output.file()).then(output::console_columns),
    };
    shared.finish(&args.report, &session, |style| {
        let style = &Style {
            width,
            ..style.clone()
        };
        Ok(heapprof_report::top(&report, style)?)
    })
}
