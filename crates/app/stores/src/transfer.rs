//! Copies moments between a database and batches of Parquet files.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use heapprof_analysis::{
    portable::{ColumnValues, PortableBatch, SqlStore, SqliteTables, read_profile},
    store::ProfileStore,
    stored_moment::SeriesStore,
};

use crate::batches::{BatchStore, last_table};
use crate::database::{make_database, open_database};
use crate::selection::choose;

/// The result of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCount {
    /// Number of profiles that were written.
    pub profiles: usize,
    /// Number of batches that contain the exported profiles.
    pub batches: usize,
    /// Number of profiles that were skipped, because the batches already contain them.
    pub skipped: usize,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportCount {
    /// Number of profiles that were stored.
    pub loaded: usize,
    /// Names of the profiles that were skipped, because the database already has profiles with
    /// equal names.
    pub skipped: Vec<String>,
}

/// Writes the moments that a selector chooses from the database `db` to `to`. New files get the
/// mode `mode`. Each batch but the last has at least `min_samples` samples. `now` is the time for
/// [`choose`].
pub fn export_moments(
    db: &Path,
    (selector, now): (&str, i64),
    (to, mode): (BatchStore, u32),
    min_samples: usize,
) -> Result<ExportCount> {
    let named = || db.display().to_string();
    let store = open_database(db)?;
    let moments = store.moments().with_context(named)?;
    let moments = choose(selector, now, &moments)?;
    let to = to.writer(mode)?;
    let known = names_in(to.store())?;
    let (mut batch, mut count) = (PortableBatch::default(), ExportCount::default());
    let write = |batch: &PortableBatch, count: &mut ExportCount| {
        count.profiles += batch.profiles().len();
        count.batches += 1;
        to.write(batch)
    };
    for moment in &moments.moments {
        if known.contains(&(moment.name.clone(), moment.time_nanos)) {
            count.skipped += 1;
            continue;
        }
        let source = store.restore(&moment.name).with_context(named)?;
        let profile = Arc::clone(&source.profile);
        batch.add(&moment.name, &profile, &moment.labels)?;
        if batch.samples() >= min_samples {
            write(&batch, &mut count)?;
            batch = PortableBatch::default();
        }
    }
    if !batch.profiles().is_empty() {
        write(&batch, &mut count)?;
    }
    Ok(count)
}

/// Returns the names and times of the profiles in the batches.
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

/// Reads all batches into the database `db`. A new database gets the mode `mode`.
pub fn import_moments(batches: &BatchStore, db: &Path, mode: u32) -> Result<ImportCount> {
    let named = || db.display().to_string();
    let mut count = ImportCount::default();
    for batch in batches.some_names()? {
        let tables = SqliteTables::new()?;
        batches.read(&batch, &tables)?;
        let from = SqlStore(tables);
        let of_batch = || format!("{}/{batch}", batches.name());
        make_database(db, mode)?;
        let mut store = ProfileStore::open_or_create(db).with_context(named)?;
        for moment in from.moments().with_context(of_batch)? {
            if store.find(&moment.name).is_ok() {
                count.skipped.push(moment.name);
                continue;
            }
            let profile = read_profile(&from.0, moment.id, &moment.types);
            let profile = Arc::new(profile.with_context(of_batch)?);
            store
                .load_labelled(&moment.name, &profile, &moment.labels, &mut |_, _| {})
                .with_context(named)?;
            count.loaded += 1;
        }
    }
    Ok(count)
}
