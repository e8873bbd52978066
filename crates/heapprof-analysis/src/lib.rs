//! Questions about heap profiles, answered through SQLite.
//!
//! A [`Question`] joins profiles with a [`Query`]. Its [`Session`] is a SQLite connection whose
//! virtual tables show what the kernels computed from the profiles (flat and cum, the call tree,
//! stacks). Every report is a statement over these tables and returns plain rows. [`Store`] keeps
//! profiles in a database that has the same tables as real ones. Nothing here prints, formats units
//! or opens other files.

mod builds;
mod comment;
mod coverage;
mod diff;
mod error;
mod folded;
mod gate;
mod header;
mod info;
mod leaks;
mod list;
mod nameless;
mod own_code;
mod peek;
mod place;
mod question;
mod relation;
mod session;
mod stack_table;
mod statement;
mod store;
mod suppression;
mod tags;
mod top;
mod traces;
mod tree;
mod wrapper;

pub use crate::{
    builds::{Incomparable, incomparable},
    comment::{Dumped, Process},
    coverage::{Resident, Runtime, resident, runtime},
    diff::{Change, Diff, DiffRow, Status, diff},
    error::Error,
    folded::folded,
    gate::{Broken, Rule, Verdict},
    header::{Header, SampleType},
    info::{Info, MappingInfo, TypeTotal, info},
    leaks::{InUse, Leak, Leaks, leaks},
    list::{List, Listing, list},
    nameless::{Nameless, nameless},
    own_code::{OwnCode, own_code},
    peek::{Neighbours, Peek, PeekRow, peek},
    place::{OTHER, Place, PlaceId, Places},
    question::{Question, Source, TreeOptions, Types, agree},
    relation::documented as documented_tables,
    session::Session,
    statement::{ResultTable, Statement, Value, run as run_statement},
    store::{SCHEMA_VERSION, Snapshot, Store, StoredProfile},
    suppression::{Suppression, Suppressions},
    tags::{Tag, Tags, tags},
    top::{Other, Top, TopRow, top},
    traces::{LabelValue, Trace, Traces, traces},
    tree::{Tree, TreeRow, tree},
    wrapper::{Wrapper, wrappers},
};

pub use heapprof_totals::{
    entity::EMPTY_STACK,
    estimate::{Confidence, Estimate, Spread},
    pattern::regex_error,
    query::{Filters, Granularity, Query, Sort},
    totals::Total,
};
