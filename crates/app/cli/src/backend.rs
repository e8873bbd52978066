//! Where stored moments are: the database, batches of Parquet files, or a cluster of ClickHouse.

use std::path::PathBuf;

/// Where stored moments are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreBackend {
    /// A database.
    Database(PathBuf),
    /// What `export --parquet` wrote: a folder, or an address.
    Batches(PathBuf),
    /// A server of ClickHouse, by its address.
    ClickHouse(String),
}

impl StoreBackend {
    /// Its name, for errors and notes.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Database(path) | Self::Batches(path) => path.display().to_string(),
            Self::ClickHouse(address) => address.clone(),
        }
    }
}
