//! `heapprof ls`: the profiles of the database.

use anyhow::{Context, Result, bail};
use heapprof_analysis::Store;
use heapprof_report::Style;

use super::Shared;
use crate::args::LsArgs;
use crate::output;

pub(super) fn run(shared: &Shared, args: &LsArgs) -> Result<()> {
    let db = shared.sources.db();
    let named = || db.display().to_string();
    if !db.exists() {
        bail!(
            "{}: there is no such database; heapprof load makes it",
            db.display()
        );
    }
    let profiles = Store::open(db)
        .and_then(|store| store.profiles())
        .with_context(named)?;
    let style = Style {
        format: args.format,
        color: false,
        unit: args.unit.clone(),
        ..Style::default()
    };
    let text = heapprof_report::stored(&profiles, &style)?;
    output::text(args.output.file(), &text)
}
