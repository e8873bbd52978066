//! Stored profiles in tables that any SQL engine can hold: Parquet files, ClickHouse and others.
//!
//! The tables have the names and columns of the database, with three differences. Ids are computed
//! from content (`id.rs`), so two machines give a function the same id, and storing a row twice
//! changes nothing. No column is NULL except the spread of estimates; 0 stands for a missing value.
//! There is no tree of stacks, because old engines have no recursive statements: `stack_location`
//! has the locations of each stack, and `stack_function` has its functions.

mod batch;
#[cfg(feature = "clickhouse")]
pub mod clickhouse;
#[cfg(feature = "datafusion")]
pub mod datafusion;
mod engine;
mod id;
#[cfg(feature = "parquet")]
pub mod parquet;
mod profile_rows;
mod sql_store;
mod sqlite;
mod statement;

pub use batch::{ColumnValues, PortableBatch};
pub use engine::{SqlAnswer, SqlEngine};
pub use profile_rows::read_profile;
pub use sql_store::SqlStore;
pub use sqlite::SqliteTables;
pub use statement::{PortableQuery, diff_sql, growth_sql, top_sql};

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A whole number of 64 bits.
    Int,
    /// A whole number, or NULL.
    MaybeInt,
    /// A floating-point number, or NULL.
    MaybeReal,
    /// A text.
    Text,
}

/// A table: its name, its columns, and the columns that sort and identify its rows.
#[derive(Clone, Copy, Debug)]
pub struct TableForm {
    /// The name of the table.
    pub name: &'static str,
    /// The columns, each with its type.
    pub columns: &'static [(&'static str, ColumnKind)],
    /// The columns that identify a row, in the order of sorting.
    pub key: &'static [&'static str],
    /// Whether the number of rows grows with the number of samples. The rows of such tables are
    /// divided between the servers of a cluster. The rows of other tables are on each server.
    pub is_large: bool,
}

use ColumnKind::{Int, MaybeInt, MaybeReal, Text};

/// All tables, in the order in which they are written. The table of profiles comes last: a row in
/// it means that all other rows of the profile are stored.
pub const PORTABLE_TABLES: [TableForm; 16] = [
    small_table(
        "sample_type",
        &[("id", Int), ("type", Text), ("unit", Text)],
        &["id"],
    ),
    small_table(
        "mapping",
        &[
            ("id", Int),
            ("memory_start", Int),
            ("memory_limit", Int),
            ("file_offset", Int),
            ("filename", Text),
            ("build_id", Text),
            ("has_functions", Int),
            ("has_filenames", Int),
            ("has_line_numbers", Int),
            ("has_inline_frames", Int),
        ],
        &["id"],
    ),
    small_table(
        "function",
        &[
            ("id", Int),
            ("name", Text),
            ("system_name", Text),
            ("filename", Text),
            ("start_line", Int),
            ("module", Text),
            ("is_library", Int),
        ],
        &["id"],
    ),
    small_table(
        "location",
        &[
            ("id", Int),
            ("mapping", Int),
            ("address", Int),
            ("is_folded", Int),
            ("function", Int),
        ],
        &["id"],
    ),
    small_table(
        "line",
        &[
            ("location", Int),
            ("position", Int),
            ("function", Int),
            ("line", Int),
            ("column", Int),
        ],
        &["location", "position"],
    ),
    small_table(
        "label",
        &[
            ("label_set", Int),
            ("position", Int),
            ("key", Text),
            ("str", Text),
            ("num", Int),
            ("num_unit", Text),
        ],
        &["label_set", "position"],
    ),
    small_table(
        "stack_location",
        &[("stack", Int), ("position", Int), ("location", Int)],
        &["stack", "position"],
    ),
    small_table(
        "stack_function",
        &[("stack", Int), ("function", Int), ("is_leaf", Int)],
        &["stack", "function"],
    ),
    TableForm {
        name: "heap_sample",
        columns: &[
            ("profile", Int),
            ("stack", Int),
            ("label_set", Int),
            ("alloc_objects", Int),
            ("alloc_space", Int),
            ("inuse_objects", Int),
            ("inuse_space", Int),
        ],
        key: &["stack", "label_set", "profile"],
        is_large: true,
    },
    TableForm {
        name: "heap_spread",
        columns: &[
            ("profile", Int),
            ("stack", Int),
            ("label_set", Int),
            ("alloc_objects_sampled", MaybeInt),
            ("alloc_objects_variance", MaybeReal),
            ("alloc_space_sampled", MaybeInt),
            ("alloc_space_variance", MaybeReal),
            ("inuse_objects_sampled", MaybeInt),
            ("inuse_objects_variance", MaybeReal),
            ("inuse_space_sampled", MaybeInt),
            ("inuse_space_variance", MaybeReal),
        ],
        key: &["stack", "label_set", "profile"],
        is_large: true,
    },
    TableForm {
        name: "other_sample",
        columns: &[
            ("profile", Int),
            ("type", Int),
            ("stack", Int),
            ("label_set", Int),
            ("value", Int),
            ("sampled", MaybeInt),
            ("variance", MaybeReal),
        ],
        key: &["type", "stack", "label_set", "profile"],
        is_large: true,
    },
    small_table(
        "comment",
        &[("profile", Int), ("position", Int), ("text", Text)],
        &["profile", "position"],
    ),
    small_table(
        "profile_total",
        &[
            ("profile", Int),
            ("position", Int),
            ("type", Int),
            ("total", Int),
            ("net", Int),
        ],
        &["profile", "position"],
    ),
    small_table(
        "profile_mapping",
        &[("profile", Int), ("position", Int), ("mapping", Int)],
        &["profile", "position"],
    ),
    small_table(
        "profile_label",
        &[("profile", Int), ("key", Text), ("value", Text)],
        &["profile", "key"],
    ),
    small_table(
        "profile",
        &[
            ("id", Int),
            ("name", Text),
            ("time_nanos", Int),
            ("duration_nanos", Int),
            ("period_type", Text),
            ("period_unit", Text),
            ("period", Int),
            ("default_sample_type", Text),
            ("drop_frames", Text),
            ("keep_frames", Text),
            ("doc_url", Text),
            ("samples", Int),
        ],
        &["id"],
    ),
];

const fn small_table(
    name: &'static str,
    columns: &'static [(&'static str, ColumnKind)],
    key: &'static [&'static str],
) -> TableForm {
    TableForm {
        name,
        columns,
        key,
        is_large: false,
    }
}

/// Returns the position of a table among all tables.
fn table_index(name: &str) -> usize {
    let at = PORTABLE_TABLES.iter().position(|table| table.name == name);
    at.unwrap_or_else(|| unreachable!("the table {name}"))
}
