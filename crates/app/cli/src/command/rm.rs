//! `heapprof db rm NAME`: removes profiles from the database.

use std::path::Path;

use anyhow::{Context, Result, bail};
use heapprof_analysis::store::ProfileStore;

use crate::args::RmArgs;
use crate::context::CommandContext;
use crate::messages;

pub(super) fn run(context: &CommandContext, args: &RmArgs) -> Result<()> {
    let db = context.sources.db();
    let named = || db.display().to_string();
    if !db.exists() {
        bail!("{}: there is no such database", db.display());
    }
    let mut store = ProfileStore::open_to_write(db).with_context(named)?;
    let mut names = args.names.clone();
    names.sort();
    names.dedup();
    store.remove(&names).with_context(named)?;
    give_back(&mut store, db);
    Ok(())
}

/// Gives the space of removed profiles back to the file system.
pub(super) fn give_back(store: &mut ProfileStore, db: &Path) {
    if let Err(error) = store.compact() {
        messages::note(&format!(
            "{}: the profiles are removed, but their space could not be given back: {error}",
            db.display()
        ));
    }
}
