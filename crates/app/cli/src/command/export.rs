//! `heapprof db export --parquet DIR`: writes stored profiles as files that other engines read.

pub(super) use self::parquet::{import, run};

#[cfg(not(feature = "parquet"))]
mod parquet {
    use anyhow::{Result, bail};
    use heapprof_stores::WITHOUT_PARQUET;

    use crate::args::{ExportArgs, ImportArgs};
    use crate::context::CommandContext;

    pub(in crate::command) fn run(_: &CommandContext, _: &ExportArgs) -> Result<()> {
        bail!(WITHOUT_PARQUET)
    }

    pub(in crate::command) fn import(_: &CommandContext, _: &ImportArgs) -> Result<()> {
        bail!(WITHOUT_PARQUET)
    }
}

#[cfg(feature = "parquet")]
mod parquet {
    use std::path::Path;

    use anyhow::{Result, bail};
    use heapprof_process::clock;
    use heapprof_stores::{BatchStore, export_moments, import_moments};

    use crate::args::{ExportArgs, ImportArgs};
    use crate::context::CommandContext;
    use crate::{messages, panics};

    fn open(place: &Path) -> Result<BatchStore> {
        panics::exit_on_panic(place);
        BatchStore::at_place(place)
    }

    pub(in crate::command) fn run(context: &CommandContext, args: &ExportArgs) -> Result<()> {
        let to = open(&args.parquet)?;
        let shown = to.name();
        if args.file_mode.is_typed() && !to.has_file_modes() {
            bail!("{shown}: --file-mode has no effect there");
        }
        let selector = args.selector.as_deref().unwrap_or_default();
        let done = export_moments(
            context.sources.db(),
            (selector, clock::nanos()),
            (to, args.file_mode.mode()?.0),
            args.batch,
        )?;
        let there = messages::already_stored_suffix(done.skipped);
        messages::note(&format!(
            "exported {} profiles in {} batches into {shown}{there}",
            done.profiles, done.batches
        ));
        Ok(())
    }

    /// Reads batches of Parquet files back into the database.
    pub(in crate::command) fn import(context: &CommandContext, args: &ImportArgs) -> Result<()> {
        let mode = args.file_mode.mode()?.0;
        let db = context.sources.db();
        let done = import_moments(&open(&args.place)?, db, mode)?;
        let there = match &done.skipped[..] {
            [] => String::new(),
            [one] => format!("; the name {one} already existed"),
            [first, .., last] => {
                let n = done.skipped.len();
                format!("; {n} names already existed, {first} to {last}")
            }
        };
        let loaded = done.loaded;
        let s = if loaded == 1 { "" } else { "s" };
        let db = db.display();
        messages::note(&format!("imported {loaded} profile{s} into {db}{there}"));
        Ok(())
    }
}
