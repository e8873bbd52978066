//! Questions about heap profiles, answered through SQLite.
//!
//! A [`ProfileQuestion`] joins profiles with a [`Query`]. Its [`AnalysisSession`] is a SQLite
//! connection whose virtual tables show what the kernels computed from the profiles (flat and cum,
//! the call tree, stacks). Every report is a statement over these tables and returns plain rows.
//! [`ProfileStore`] keeps profiles in a database that has the same tables as real ones. Nothing
//! here prints, formats units or opens other files.
//!
//! # The path of one question
//!
//! `heapprof top --focus parse p.pb.gz`:
//!
//! 1. The cli finds that the argument is a file. heapprof-formats reads its first 64 KiB. If these
//!    are of no foreign format, heapprof-profile streams the file: it inflates it into one buffer,
//!    walks the wire format and puts samples into columns. Ids and numbers of texts stay raw until
//!    the end, because the string table comes last. Then every reference is checked.
//! 2. [`ProfileQuestion::new`] adds up each sample type. This total bounds every later sum, so the
//!    kernels of heapprof-totals add without checks; a total beyond 64 bits ends here. `filter.rs`
//!    tries the regular expression once for each function and stores the results as bits.
//!    `entity.rs` finds the row of each frame at this granularity.
//! 3. [`AnalysisSession`] opens an in-memory SQLite connection whose eponymous virtual tables
//!    (`relation/`) show the question. Nothing is copied into SQLite.
//! 4. `top.rs` runs its statement. The first row that SQLite reads of `function_total` makes the
//!    kernel run: `view.rs` works out each sample's frames into one buffer, and `totals.rs` adds
//!    the sample's values to each of its entities once.
//! 5. The rows go to heapprof-report, which makes a table of them, and the cli writes it.
//!
//! A stored profile (`heapprof top monday`) is put together from the rows of the database
//! (`store/restore.rs`) in place of step 1. It then goes through the other steps, in a connection
//! of its own, because a real table would hide a virtual one of the same name.
//!
//! No report holds as many rows as a profile has samples. `AnalysisSession::each`,
//! `TreeReport::each` and `PeekReport::neighbours` give rows one by one, and the report asks for
//! them twice if columns have widths. A row names a place by its number ([`PlaceId`]).
//!
//! Each profile is written to the database in one transaction, with the rollback journal, so a
//! process that is killed leaves the database as it was. Migrations are append-only.

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
    builds::{IncomparableFile, incomparable_files},
    comment::{DataBreakdown, DumpTime, ProfiledProcess, find_single_value, program_and_title},
    compare::{RunDifference, RunFigures, RunSpread, run_difference},
    coverage::{
        ManagedRuntime, PythonSmallObjects, RssBreakdown, UNSEEN_ALLOCATOR_PREFIX, resident,
        unseen_runtime,
    },
    diff::{DiffReport, DiffRow, DiffStatus, ValueChange, diff},
    error::AnalysisError,
    folded::each_folded_stack,
    fork_audit::{
        ForkAudit, ForkChild, ForkLoad, ForkRule, ForkRuleViolation, ForkUnsharedPlace, fork_audit,
    },
    gate::{GateRule, RuleVerdict, RuleViolation},
    growth::{FunctionGrowth, GrowthVerdict},
    header::{ReportHeader, SampleType},
    info::{InfoReport, MappingInfo, TypeTotal, info},
    leaks::{InUseAmount, LeakRow, LeaksReport, leaks},
    line_growth::line_growth,
    list::{FunctionListing, ListReport, list},
    moment_labels::labels_of,
    nameless::{NamelessShare, nameless_share},
    own_code::OwnCode,
    peak::{LargestHeap, peak},
    peek::{PeekNeighbours, PeekReport, PeekRow, peek},
    place::{CodePlace, OTHER_NAME, PlaceId, PlaceTable, ShownFile},
    portable::{
        ColumnKind, ColumnValues, PORTABLE_TABLES, PortableBatch, PortableQuery, SqlAnswer,
        SqlEngine, SqlStore, SqliteTables, TableForm, diff_sql, growth_sql, read_profile, top_sql,
    },
    question::{
        ProfileQuestion, QuestionSource, TreeOptions, TypeSelection, agree, in_order_of_time,
    },
    relation::documented_tables,
    report::{
        ReportContents, ReportFunction, ReportMoment, ReportNode, report, report_below, report_sql,
    },
    sample_plan::{NamedProfile, PlannedAddition, SamplePlan},
    series::{
        MomentAggregation, MomentSelection, MomentSelector, SelectorError, SeriesGrowth,
        SeriesGrowthRow, SeriesProcesses, SeriesSummary, choose_moments, is_counter, is_selector,
        list_series, parse_time, roll_up, selection_from_moments, series_growth,
    },
    session::AnalysisSession,
    statement::{MeasuredPerlCall, ResultTable, SqlValue, UserStatement, run_statement},
    stats::{StatsReport, StatsSize, StatsThread, StatsType, stats},
    store::{
        ProfileStore, SCHEMA_VERSION, SnapshotPosition, StoredProfile, WatchBatch, WatchEvent,
        WatchFigures, WatchMoment, WatchProcess, WatchReport, WatchStart, WatchSum, WatchedProcess,
        WiretapBatch, WiretapCode, WiretapReport, WiretapRow, WiretapRowKind, WiretapSender,
    },
    stored_moment::{ROLLED_UP_LABEL, SeriesStore, StoredMoment, service_labels},
    suppression::{SuppressionRule, SuppressionSet},
    tags::{TagRow, TagsReport, tags},
    timeline::{TimelinePeak, TimelineReport, TimelineRow, timeline},
    top::{OtherRows, TopReport, TopRow, add_code_hints, top},
    traces::{LabelValue, TraceRow, TracesReport, traces},
    tree::{TreeReport, TreeRow, tree},
    wrapper::AllocationWrapper,
};

#[cfg(feature = "clickhouse")]
pub use portable::clickhouse::{ClickHouse, ClickHouseAddress, ClickHouseTransport, UrlParameter};
#[cfg(feature = "datafusion")]
pub use portable::datafusion::DataFusion;
#[cfg(feature = "parquet")]
pub use portable::parquet::{read_parquet, write_parquet};

pub use heapprof_totals::{
    TotalsError,
    entity::EMPTY_STACK,
    estimate::{ConfidenceLevel, SumSpread, ValueEstimate},
    note::FilterNote,
    pattern::regex_error,
    query::{Granularity, Query, QueryFilters, SortKey},
    totals::TotalAndNet,
};
