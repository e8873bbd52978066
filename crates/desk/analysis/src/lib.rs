//! Questions about heap profiles, answered through SQLite.
//!
//! A [`ProfileQuestion`] joins profiles with a [`Query`]. Its [`AnalysisSession`] is a SQLite
//! connection whose virtual tables show what is computed from the profiles: flat and cum, the call
//! tree, stacks. Every report is a statement over these tables and returns plain rows.
//! [`ProfileStore`](store::ProfileStore) stores profiles in a database. There the same tables are
//! ordinary tables of SQLite. Nothing here prints, formats units or opens other files.
//!
//! The root of the crate has what every question needs. Each report, and each kind of store, has a
//! module of its own.
//!
//! # The path of one question
//!
//! `heapprof top --focus parse p.pb.gz`:
//!
//! 1. The cli finds that the argument is a file. heapprof-formats reads its first 64 KiB. If these
//!    are of no foreign format, heapprof-profile streams the file: it inflates it into one buffer,
//!    walks the wire format and puts samples into columns. Ids and numbers of texts stay raw until
//!    the end, because the string table comes last. Then every reference is checked.
//! 2. [`ProfileQuestion::new`] adds up each sample type. If the total does not fit in 64 bits, the
//!    question ends here with an error. The total bounds every later sum, so heapprof-totals adds
//!    without checks. `filter.rs` tries the regular expression once for each function and stores
//!    the results as bits. `entity.rs` finds the row of each frame at this granularity.
//! 3. [`AnalysisSession`] opens an in-memory SQLite connection whose eponymous virtual tables
//!    (`relation/`) show the question. Nothing is copied into SQLite.
//! 4. `top.rs` runs its statement. When SQLite reads the first row of `function_total`, all rows
//!    are computed: `view.rs` works out each sample's frames into one buffer, and `totals.rs` adds
//!    the sample's values to each of its entities once.
//! 5. The rows go to heapprof-report, which makes a table of them, and the cli writes it.
//!
//! A stored profile (`heapprof top monday`) is put together from the rows of the database
//! (`store/restore.rs`) in place of step 1. It then goes through the other steps. These steps use a
//! connection of their own: in the database's connection, a stored table would hide the virtual
//! table with the same name.
//!
//! No report holds as many rows as a profile has samples. `AnalysisSession::each`,
//! `TreeReport::each` and `PeekReport::neighbours` pass rows one by one. The report reads the rows
//! twice if it has to find the widths of columns. A row names a place by its number ([`PlaceId`]).
//!
//! Each profile is written to the database in one transaction, with the rollback journal, so a
//! process that is killed leaves the database as it was. Migrations are append-only.

pub mod builds;
pub mod comment;
pub mod compare;
pub mod coverage;
pub mod diff;
mod error;
pub mod folded;
pub mod fork_audit;
mod forks;
pub mod gate;
pub mod growth;
mod header;
pub mod info;
pub mod leaks;
pub mod line_growth;
pub mod list;
pub mod moment_labels;
mod moments;
pub mod nameless;
mod part;
pub mod peak;
pub mod peek;
mod place;
pub mod portable;
mod question;
pub mod relation;
pub mod report;
mod report_imports;
mod report_tree;
pub mod sample_plan;
pub mod series;
mod session;
mod stack_table;
pub mod statement;
pub mod stats;
pub mod store;
pub mod stored_moment;
pub mod suppression;
pub mod tags;
pub mod timeline;
pub mod top;
pub mod traces;
pub mod tree;
pub mod wrapper;

pub use crate::{
    error::AnalysisError,
    header::{ReportHeader, SampleType},
    place::{CodePlace, OTHER_NAME, PlaceId, PlaceTable, ShownFile},
    question::{
        ProfileQuestion, QuestionSource, TreeOptions, TypeSelection, agree, in_order_of_time,
    },
    session::AnalysisSession,
};

pub use heapprof_totals::{
    TotalsError,
    entity::EMPTY_STACK,
    estimate::{ConfidenceLevel, SumSpread, ValueEstimate},
    note::FilterNote,
    pattern::regex_error,
    query::{Granularity, Query, QueryFilters, SortKey},
    totals::TotalAndNet,
};
