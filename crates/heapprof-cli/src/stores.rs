//! Stores of moments are opened: the database, the batches of a folder, a cluster.

use std::path::Path;
#[cfg(feature = "parquet")]
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{SeriesStore, Store, StoredMoment};

use crate::backend::Backend;

/// A store with all its moments.
pub(crate) type Opened = (Box<dyn SeriesStore>, Vec<StoredMoment>);

/// Opens a database, which must be there.
pub(crate) fn database(path: &Path) -> Result<Store> {
    if !path.exists() {
        bail!(
            "{}: there is no such database; heapprof load makes it",
            path.display()
        );
    }
    Store::open(path).with_context(|| path.display().to_string())
}

/// Opens a store, and reads what moments it has.
pub(crate) fn open(backend: &Backend) -> Result<Opened> {
    let named = || backend.name();
    let store: Box<dyn SeriesStore> = match backend {
        Backend::Database(path) => Box::new(database(path)?),
        Backend::Folder(folder) => of_folder(folder)?,
        Backend::ClickHouse(address) => crate::clickhouse::open(address)?,
    };
    let moments = store.moments().with_context(named)?;
    Ok((store, moments))
}

/// The batches in a folder: folders of files that are whole. What was not finished has another
/// name.
#[cfg(feature = "parquet")]
pub(crate) fn batches(folder: &Path) -> Result<Vec<PathBuf>> {
    let named = || format!("{}: cannot be read", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(named)? {
        let path = entry.with_context(named)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("batch-") && path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The tables of a batch.
#[cfg(feature = "parquet")]
pub(crate) fn read_batch(batch: &Path, tables: &heapprof_analysis::SqliteTables) -> Result<()> {
    for form in &heapprof_analysis::TABLES {
        let path = batch.join(format!("{}.parquet", form.name));
        let named = || path.display().to_string();
        let file = std::fs::File::open(&path).with_context(named)?;
        let columns = heapprof_analysis::read_parquet(form, file).with_context(named)?;
        tables.add(form, &columns).with_context(named)?;
    }
    Ok(())
}

#[cfg(feature = "parquet")]
fn some_batches(folder: &Path) -> Result<Vec<PathBuf>> {
    let batches = batches(folder)?;
    if batches.is_empty() {
        bail!(
            "{}: has no profiles; heapprof export --parquet writes them there",
            folder.display()
        );
    }
    Ok(batches)
}

#[cfg(feature = "datafusion")]
fn of_folder(folder: &Path) -> Result<Box<dyn SeriesStore>> {
    let engine = heapprof_analysis::DataFusion::open(&some_batches(folder)?);
    let engine = engine.with_context(|| folder.display().to_string())?;
    Ok(Box::new(heapprof_analysis::SqlStore(engine)))
}

#[cfg(all(feature = "parquet", not(feature = "datafusion")))]
fn of_folder(folder: &Path) -> Result<Box<dyn SeriesStore>> {
    let tables = heapprof_analysis::SqliteTables::new()?;
    for batch in some_batches(folder)? {
        read_batch(&batch, &tables)?;
    }
    Ok(Box::new(heapprof_analysis::SqlStore(tables)))
}

#[cfg(not(feature = "parquet"))]
fn of_folder(_: &Path) -> Result<Box<dyn SeriesStore>> {
    bail!("{}", WITHOUT_PARQUET)
}

/// What a build says that can't read Parquet.
#[cfg(not(feature = "parquet"))]
pub(crate) const WITHOUT_PARQUET: &str =
    "this heapprof was built without Parquet; build one by cargo install --features parquet";
