//! `heapprof db series`: lists the series of the database.

use anyhow::Result;
use heapprof_analysis::series::list_series;
use heapprof_report::ReportStyle;
use heapprof_stores::choose;

use crate::args::SeriesArgs;
use crate::context::CommandContext;
use crate::output;
use heapprof_process::clock;

pub(super) fn run(context: &CommandContext, args: &SeriesArgs) -> Result<()> {
    let (_, moments) = heapprof_stores::open(context.sources.backend())?;
    let text = args.selector.as_deref().unwrap_or_default();
    let moments = choose(text, clock::nanos(), &moments)?.moments;
    let style = ReportStyle {
        format: args.format,
        unit: args.unit.clone(),
        ..ReportStyle::default()
    };
    let text = heapprof_report::series(&list_series(&moments), &style)?;
    output::text(args.output.file(), &text)
}
