//! The settings for finding and reading profiles, as a front end gives them.

use std::path::PathBuf;

use heapprof_analysis::series::MomentAggregation;
use heapprof_formats::FormatReadOptions;
use heapprof_stores::StoreBackend;

/// The settings for finding and reading profiles.
#[derive(Clone)]
pub struct SourceSettings {
    /// The path of the database.
    pub db: PathBuf,
    /// Whether the user named the database in an option.
    pub is_db_named: bool,
    /// The options for reading files.
    pub options: FormatReadOptions,
    /// Whether the sample types `objects` and `space` are renamed to `inuse_objects` and
    /// `inuse_space`, because jeprof does not distinguish these types.
    pub names_in_use: bool,
    /// The store in which selectors are looked up. If the store is not the database, names are
    /// looked up in the store, too.
    pub backend: StoreBackend,
    /// Whether the profiles that are read will be stored in the backend. A name then never means a
    /// profile of the backend.
    pub is_loading: bool,
    /// Whether moments of one process may be added up.
    pub sum: bool,
    /// How a selector combines values in use over time.
    pub over_time: MomentAggregation,
    /// The clock: the present time in nanoseconds since 1970 UTC.
    pub clock: fn() -> i64,
}
