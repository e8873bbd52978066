//! Places where profiles are stored with their names and labels: an SQLite database, batches of
//! Parquet files in a folder or an object store, or a ClickHouse cluster.
//!
//! A [`StoreBackend`] names a store, and [`open()`] opens it for questions. [`choose`] and
//! [`read_selection`] find the moments that a selector chooses. [`DatabaseLoader`] and
//! [`load_into_clickhouse`] store profiles, [`RetentionPlan`] decides which old profiles are
//! removed, and `export_moments` and `import_moments` copy profiles between a database and batches.
//! [`DatagramCounts`] collects the wiretap's datagrams until they are written to a database.
//!
//! This crate prints nothing: functions return values for messages.
#![forbid(unsafe_code)]

mod backend;
#[cfg(feature = "parquet")]
mod batches;
mod clickhouse;
mod database;
mod error;
mod load;
mod open;
mod retention;
mod selection;
#[cfg(any(feature = "clickhouse", feature = "object-store"))]
mod store_user;
#[cfg(feature = "parquet")]
mod transfer;
mod wiretap;

pub use backend::StoreBackend;
#[cfg(feature = "parquet")]
pub use batches::BatchStore;
pub use clickhouse::load_into_clickhouse;
pub use database::{DatabaseLoader, make_database, open_database};
pub use error::StoreError;
pub use load::{LabelledProfile, LoadCount, StoreOutcome};
pub use open::{OpenedStore, WITHOUT_PARQUET, open, query};
pub use retention::{RetentionPlan, RetentionRule, RolledUpLate, ServiceGap};
pub use selection::{SelectedProfile, are_unique, choose, read_selection};
#[cfg(feature = "parquet")]
pub use transfer::{ExportCount, ImportCount, export_moments, import_moments};
pub use wiretap::DatagramCounts;
