//! Questions about heap profiles, answered through SQLite.
//!
//! A [`Question`] joins profiles with a [`Query`]. Its [`Session`] is a SQLite connection whose
//! virtual tables show what the kernels computed from the profiles (flat and cum, the call tree,
//! stacks). Every report is a statement over these tables and returns plain rows. [`Store`] keeps
//! profiles in a database that has the same tables as real ones. Nothing here prints, formats units
//! or opens other files.
//!
//! # The path of one question
//!
//! `heapprof top --focus parse p.pb.gz`:
//!
//! 1. The cli finds that the argument is a file. heapprof-formats looks at its first 64 KiB. What
//!    is no foreign format goes on to heapprof-profile, which streams it: it inflates into one
//!    buffer, walks the wire and puts samples into columns. Ids and numbers of texts stay raw until
//!    the end, because the string table comes last. Then every reference is checked.
//! 2. [`Question::new`] adds up each sample type. This total bounds every later sum, so the kernels
//!    of heapprof-totals add without checks; a total beyond 64 bits ends here. `filter.rs` tries
//!    the regular expression once a function and leaves bits. `entity.rs` says which row each frame
//!    belongs to at this granularity.
//! 3. [`Session`] opens an in-memory SQLite connection whose eponymous virtual tables (`relation/`)
//!    show the question. Nothing is copied into SQLite.
//! 4. `top.rs` runs its statement. The first row that SQLite reads of `function_total` makes the
//!    kernel run: `view.rs` works out each sample's frames into one buffer, and `totals.rs` adds,
//!    each entity once a sample.
//! 5. The rows go to heapprof-report, which makes a table of them, and the cli writes it.
//!
//! A stored profile (`heapprof top monday`) is put together from the rows of the database
//! (`store/restore.rs`) in place of 1. It then goes the way above, in a connection of its own,
//! because a real table would hide a virtual one of the same name.
//!
//! Nobody holds rows that are as many as a profile's samples. `Session::each`, `Tree::each` and
//! `Peek::neighbours` give them one by one, and the report asks for them twice if columns have
//! widths. A row names a place by its number ([`PlaceId`]).
//!
//! The database is written in one transaction for each profile, with the rollback journal, so a
//! process that is killed leaves it as it was. Migrations are append-only.

mod builds;
mod comment;
mod compare;
mod coverage;
mod diff;
mod error;
mod folded;
mod fork_audit;
mod forks;
mod gate;
mod growth;
mod header;
mod info;
mod leaks;
mod line_growth;
mod list;
mod moment_labels;
mod moments;
mod nameless;
mod own_code;
mod part;
mod peak;
mod peek;
mod place;
mod portable;
mod question;
mod relation;
mod report;
mod sample_plan;
mod series;
mod session;
mod stack_table;
mod statement;
mod stats;
mod store;
mod stored_moment;
mod suppression;
mod tags;
mod timeline;
mod top;
mod traces;
mod tree;
mod wrapper;

pub use crate::{
    builds::{Incomparable, incomparable},
    comment::{Account, Dumped, Process, program_called, said_once},
    compare::{RunDifference, RunFigures, RunSpread, run_difference},
    coverage::{Resident, Runtime, SmallObjects, UNSEEN_ALLOCATOR, resident, unseen_runtime},
    diff::{Change, Diff, DiffRow, Status, diff},
    error::Error,
    folded::folded,
    fork_audit::{ForkAudit, ForkBroken, ForkChild, ForkLoad, ForkRule, ForkUnshared, fork_audit},
    gate::{Broken, Rule, Verdict},
    growth::{Growth, Verdict as GrowthVerdict},
    header::{Header, SampleType},
    info::{Info, MappingInfo, TypeTotal, info},
    leaks::{InUse, Leak, Leaks, leaks},
    line_growth::line_growth,
    list::{List, Listing, list},
    moment_labels::labels_of,
    nameless::{Nameless, nameless},
    own_code::{OwnCode, own_code},
    peak::{Peak, peak},
    peek::{Neighbours, Peek, PeekRow, peek},
    place::{OTHER, Place, PlaceId, Places, ShownFile},
    portable::{
        Answer, Batch, Cells, Engine, Kind, PortableQuery, SqlStore, SqliteTables, TABLES,
        TableForm, diff_sql, growth_sql, read_profile, top_sql,
    },
    question::{Question, Source, TreeOptions, Types, agree},
    relation::documented as documented_tables,
    report::{Moment, Report, ReportFunction, ReportNode, report, report_below, report_sql},
    sample_plan::{Add, NamedProfile, Plan},
    series::{
        Chosen, OverTime, Processes, Selector, SelectorError, Series, SeriesGrowth,
        SeriesGrowthRow, chosen, chosen_of, is_counter, is_selector, listed, parse_time, roll_up,
        series_growth,
    },
    session::Session,
    statement::{Call, ResultTable, Statement, Value, run as run_statement},
    stats::{Stats, StatsSize, StatsThread, StatsType, stats},
    store::{
        SCHEMA_VERSION, Snapshot, Store, StoredProfile, Watch, WatchBatch, WatchEvent,
        WatchFigures, WatchMoment, WatchProcess, WatchStart, WatchSum, WatchedProcess, Wiretap,
        WiretapBatch, WiretapBy, WiretapCode, WiretapRow, WiretapSender,
    },
    stored_moment::{ROLLED_UP, SeriesStore, StoredMoment, of_service},
    suppression::{Suppression, Suppressions},
    tags::{Tag, Tags, tags},
    timeline::{Timeline, TimelinePeak, TimelineRow, timeline},
    top::{Other, Top, TopRow, top},
    traces::{LabelValue, Trace, Traces, traces},
    tree::{Tree, TreeRow, tree},
    wrapper::{Wrapper, wrappers},
};

#[cfg(feature = "clickhouse")]
pub use portable::clickhouse::{ClickHouse, ClickHouseAddress, Parameter, Transport};
#[cfg(feature = "datafusion")]
pub use portable::datafusion::DataFusion;
#[cfg(feature = "parquet")]
pub use portable::parquet::{read_parquet, write_parquet};

pub use heapprof_totals::{
    entity::EMPTY_STACK,
    estimate::{Confidence, Estimate, Spread},
    pattern::regex_error,
    query::{Filters, Granularity, Query, Sort},
    totals::Total,
};
