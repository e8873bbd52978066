//! `heapprof series`: the series of the database.

use anyhow::Result;
use heapprof_analysis::listed;
use heapprof_report::Style;

use super::Shared;
use crate::args::SeriesArgs;
use crate::{selection, stores};

pub(super) fn run(shared: &Shared, args: &SeriesArgs) -> Result<()> {
    let (_, moments) = stores::open(shared.sources.backend())?;
    let text = args.selector.as_deref().unwrap_or_default();
    let moments = selection::choose(text, &moments)?.moments;
    let style = Style {
        format: args.format,
        unit: args.unit.clone(),
        ..Style::default()
    };
    let text = heapprof_report::series(&listed(&moments), &style)?;
    shared.text(args.output.file(), &text)
}
