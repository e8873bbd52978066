//! `heapprof rm NAME`: profiles out of the database.

use anyhow::{Context, Result, bail};
use heapprof_analysis::Store;

use super::Shared;
use crate::args::RmArgs;

pub(super) fn run(shared: &Shared, args: &RmArgs) -> Result<()> {
    let db = shared.sources.db();
    let named = || db.display().to_string();
    if !db.exists() {
        bail!("{}: there is no such database", db.display());
    }
    let mut store = Store::open_or_create(db).with_context(named)?;
    // All names are looked up first, so that a slip removes nothing.
    for name in &args.names {
        store.find(name).with_context(named)?;
    }
    let mut names = args.names.clone();
    names.sort();
    names.dedup();
    for name in &names {
        store.remove(name).with_context(named)?;
    }
    Ok(())
}
