//! The place where moments are stored: the database, batches of Parquet files, or a ClickHouse
//! cluster.

use std::path::PathBuf;

/// The place where moments are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreBackend {
    /// An SQLite database, by its path.
    Database(PathBuf),
    /// A folder, or the address of an object store, that `export --parquet` wrote to.
    Batches(PathBuf),
    /// A ClickHouse server or cluster, by its address.
    ClickHouse(String),
}

impl StoreBackend {
    /// Returns the path or the address, for errors and notes.
    pub fn name(&self) -> String {
        match self {
            Self::Database(path) | Self::Batches(path) => path.display().to_string(),
            Self::ClickHouse(address) => address.clone(),
        }
    }
}
