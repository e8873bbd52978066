//! Opens stores of moments: a database, batches of files, or a cluster.

use std::path::Path;

#[cfg(not(feature = "parquet"))]
use anyhow::bail;
use anyhow::{Context, Result};
use heapprof_analysis::{
    statement::ResultTable,
    stored_moment::{SeriesStore, StoredMoment},
};

use crate::backend::StoreBackend;
#[cfg(feature = "parquet")]
use crate::batches::BatchStore;
use crate::clickhouse;
use crate::database::open_database;

/// A store, and the list of all its moments.
pub type OpenedStore = (Box<dyn SeriesStore>, Vec<StoredMoment>);

/// Opens a store, and reads the list of its moments.
pub fn open(backend: &StoreBackend) -> Result<OpenedStore> {
    let named = || backend.name();
    let store: Box<dyn SeriesStore> = match backend {
        StoreBackend::Database(path) => Box::new(open_database(path)?),
        StoreBackend::Batches(place) => open_batches(place)?,
        StoreBackend::ClickHouse(address) => clickhouse::open(address)?,
    };
    let moments = store.moments().with_context(named)?;
    Ok((store, moments))
}

/// Runs a user's statement on a store that consists of Parquet files or is a ClickHouse cluster.
/// Returns `None` for a SQLite database, which a session queries instead.
pub fn query(backend: &StoreBackend, statement: &str) -> Result<Option<ResultTable>> {
    Ok(match backend {
        StoreBackend::Database(_) => None,
        StoreBackend::Batches(place) => Some(query_batches(place, statement)?),
        StoreBackend::ClickHouse(address) => Some(clickhouse::query(address, statement)?),
    })
}

#[cfg(feature = "datafusion")]
fn engine(place: &Path) -> Result<heapprof_analysis::portable::datafusion::DataFusion> {
    let batches = BatchStore::at_place(place)?;
    let names = batches.some_names()?;
    let of_table = |form: &heapprof_analysis::portable::TableForm| {
        let places = names.iter().map(|name| batches.address(name, form));
        places.collect()
    };
    #[cfg(feature = "object-store")]
    let objects = batches
        .objects()
        .map(|objects| objects.for_engine())
        .transpose()?;
    #[cfg(not(feature = "object-store"))]
    let objects = None;
    let engine = heapprof_analysis::portable::datafusion::DataFusion::open(of_table, objects);
    engine.with_context(|| batches.name())
}

#[cfg(all(feature = "parquet", not(feature = "datafusion")))]
fn engine(place: &Path) -> Result<heapprof_analysis::portable::SqliteTables> {
    let batches = BatchStore::at_place(place)?;
    let tables = heapprof_analysis::portable::SqliteTables::new()?;
    for batch in batches.some_names()? {
        batches.read(&batch, &tables)?;
    }
    Ok(tables)
}

#[cfg(feature = "parquet")]
fn open_batches(place: &Path) -> Result<Box<dyn SeriesStore>> {
    Ok(Box::new(heapprof_analysis::portable::SqlStore(engine(
        place,
    )?)))
}

#[cfg(feature = "parquet")]
fn query_batches(place: &Path, statement: &str) -> Result<ResultTable> {
    use heapprof_analysis::portable::SqlEngine;

    let statement = statement.trim_end().trim_end_matches(';');
    let (columns, rows) = engine(place)?.table(statement).context("the statement")?;
    Ok(ResultTable { columns, rows })
}

#[cfg(not(feature = "parquet"))]
fn open_batches(_: &Path) -> Result<Box<dyn SeriesStore>> {
    bail!("{}", WITHOUT_PARQUET)
}

#[cfg(not(feature = "parquet"))]
fn query_batches(_: &Path, _: &str) -> Result<ResultTable> {
    bail!("{}", WITHOUT_PARQUET)
}

/// The error of a build that can't read Parquet.
pub const WITHOUT_PARQUET: &str = "this heapprof was built without Parquet, which the packages \
     of a release have; build one with cargo install heapprof-cli --features parquet";
