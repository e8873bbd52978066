//! `heapprof export --parquet DIR`: writes stored profiles as files that other engines read.

use anyhow::Result;

use crate::args::ExportArgs;
use crate::context::CommandContext;

#[cfg(not(feature = "parquet"))]
pub(super) fn run(_: &CommandContext, _: &ExportArgs) -> Result<()> {
    anyhow::bail!("{}", crate::stores::WITHOUT_PARQUET)
}

#[cfg(feature = "parquet")]
pub(super) fn run(context: &CommandContext, args: &ExportArgs) -> Result<()> {
    parquet::run(context, args)
}

#[cfg(feature = "parquet")]
mod parquet {
    use std::collections::HashSet;
    use std::sync::Arc;

    use anyhow::{Context, Result};
    use heapprof_analysis::{ColumnValues, PortableBatch, ProfileStore, SeriesStore, SqliteTables};

    use super::super::CommandContext;
    use crate::args::ExportArgs;
    use crate::batches::{BatchStore, last_table};
    use crate::{messages, output, selection, stores};

    pub(super) fn run(context: &CommandContext, args: &ExportArgs) -> Result<()> {
        let to = BatchStore::at_place(&args.parquet)?;
        let db = context.sources.db();
        let named = || db.display().to_string();
        let store = stores::database(db)?;
        let moments = store.moments().with_context(named)?;
        let moments = selection::choose(args.selector.as_deref().unwrap_or_default(), &moments)?;
        let to = to.writer(&args.file_mode)?;
        let known = names_in(&to.to)?;
        let (mut batch, mut done, mut there) = (PortableBatch::default(), [0, 0], 0);
        for moment in &moments.moments {
            if known.contains(&(moment.name.clone(), moment.time_nanos)) {
                there += 1;
                continue;
            }
            let source = store.restore(&moment.name).with_context(named)?;
            let profile = Arc::clone(&source.profile);
            batch.add(&moment.name, &profile, &moment.labels)?;
            if batch.samples() >= args.batch {
                done[0] += batch.profiles().len();
                done[1] += 1;
                to.write(&batch)?;
                batch = PortableBatch::default();
            }
        }
        if !batch.profiles().is_empty() {
            done[0] += batch.profiles().len();
            done[1] += 1;
            to.write(&batch)?;
        }
        let there = messages::already_stored_suffix(there);
        messages::note(&format!(
            "exported {} profiles in {} batches into {}{there}",
            done[0],
            done[1],
            to.to.name()
        ));
        Ok(())
    }

    /// Returns the names and times of the profiles that are stored there.
    fn names_in(batches: &BatchStore) -> Result<HashSet<(String, i64)>> {
        let mut known = HashSet::new();
        let form = last_table();
        for batch in batches.names()? {
            let columns = batches.table(&batch, form)?;
            if let [_, ColumnValues::Text(names), ColumnValues::Int(times), ..] = &columns[..] {
                known.extend(names.iter().cloned().zip(times.iter().copied()));
            }
        }
        Ok(known)
    }

    /// Reads batches back into the database.
    pub(in crate::command) fn import(
        context: &CommandContext,
        args: &crate::args::ImportArgs,
    ) -> Result<()> {
        use heapprof_analysis::{SqlStore, read_profile};

        let mode = args.file_mode.mode()?;
        let db = context.sources.db();
        let named = || db.display().to_string();
        let (mut loaded, mut there) = (0, Vec::new());
        let batches = BatchStore::at_place(&args.place)?;
        for batch in batches.some_names()? {
            let tables = SqliteTables::new()?;
            batches.read(&batch, &tables)?;
            let from = SqlStore(tables);
            let of_batch = || format!("{}/{batch}", batches.name());
            output::make_for_own(db, mode)?;
            let mut store = ProfileStore::open_or_create(db).with_context(named)?;
            for moment in from.moments().with_context(of_batch)? {
                if store.find(&moment.name).is_ok() {
                    there.push(moment.name);
                    continue;
                }
                let profile = read_profile(&from.0, moment.id, &moment.types);
                let profile = Arc::new(profile.with_context(of_batch)?);
                store
                    .load_labelled(&moment.name, &profile, &moment.labels, &mut |_, _| {})
                    .with_context(named)?;
                loaded += 1;
            }
        }
        let there = match &there[..] {
            [] => String::new(),
            [one] => format!("; the name {one} was there already"),
            [first, .., last] => {
                let n = there.len();
                format!("; {n} names were there already, {first} to {last}")
            }
        };
        let s = if loaded == 1 { "" } else { "s" };
        let db = db.display();
        messages::note(&format!("imported {loaded} profile{s} into {db}{there}"));
        Ok(())
    }
}

#[cfg(not(feature = "parquet"))]
pub(super) fn import(_: &CommandContext, _: &crate::args::ImportArgs) -> Result<()> {
    anyhow::bail!("{}", crate::stores::WITHOUT_PARQUET)
}

#[cfg(feature = "parquet")]
pub(super) fn import(context: &CommandContext, args: &crate::args::ImportArgs) -> Result<()> {
    parquet::import(context, args)
}
