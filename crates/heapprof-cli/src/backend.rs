//! Where stored moments are: the database, a folder of Parquet files, or a cluster of ClickHouse.

use std::path::PathBuf;

/// Where stored moments are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// A database.
    Database(PathBuf),
    /// A folder that `export --parquet` wrote.
    Folder(PathBuf),
    /// A server of ClickHouse, by its address.
    ClickHouse(String),
}

impl Backend {
    /// Its name, for errors and notes.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Database(path) | Self::Folder(path) => path.display().to_string(),
            Self::ClickHouse(address) => address.clone(),
        }
    }
}
