//! The options that every command has. A shell passes those of its own command line on to its
//! commands.

use std::path::{Path, PathBuf};

use clap::Args;
use heapprof_formats::ValueTypeName;
use heapprof_stores::StoreBackend;

use super::size::size;
use super::{ColorMode, OverTimeMode};

/// The heading of the options that every command has. They come after a command's own options, and
/// only in the long help.
const GLOBAL_OPTIONS_HEADING: &str = "For every command";

/// Maximum size of a profile after decompression, in bytes, if no other is given.
const DEFAULT_MAX_INFLATED: u64 = 4 << 30;

/// The options that every command has.
#[derive(Debug, Args)]
pub(crate) struct SharedOptions {
    /// When to use colours; auto uses them on a terminal, unless NO_COLOR is set [default: auto]
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    color: Option<ColorMode>,

    /// The database to which db load writes profiles, and in which their names are looked up [env:
    /// HEAPPROF_DB] [default: heapprof.db]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    db: Option<PathBuf>,

    /// The largest size of a profile after decompression, e.g. 16GiB [default: 4GiB]
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        value_parser = size,
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    max_inflated: Option<u64>,

    /// What the numbers of a file mean if the file does not state it, e.g. inuse_space/bytes (for
    /// folded stacks, bpftrace, dtrace, perf script, google-pprof --raw)
    #[arg(
        long,
        global = true,
        value_name = "TYPE/UNIT",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    pub(crate) values: Option<ValueTypeName>,

    /// Add up profiles of one process from several moments, even though memory in use at several of
    /// them is then counted more than once
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS_HEADING, hide_short_help = true)]
    pub(crate) sum: bool,

    /// With a SELECTOR that chooses several moments, which values in use to show: last, mean or max
    /// [default: last]
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHICH",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    over_time: Option<OverTimeMode>,

    /// Look up selectors and names in what db export --parquet wrote, instead of the database. It
    /// can be a folder, s3://BUCKET/PREFIX or http(s)://HOST/FOLDER
    #[arg(
        long,
        global = true,
        value_name = "DIR|URL",
        conflicts_with = "store",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    from: Option<PathBuf>,

    /// Store and look up profiles in ClickHouse instead of the database: clickhouse://HOST:PORT/DB.
    /// HEAPPROF_STORE_USER and HEAPPROF_STORE_PASSWORD set the user and the password
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    store: Option<String>,
}

impl SharedOptions {
    /// Takes over the options of the command line `outer` of a shell, which are not given here.
    pub(crate) fn inherit(&mut self, outer: &Self) {
        self.color = self.color.or(outer.color);
        self.max_inflated = self.max_inflated.or(outer.max_inflated);
        self.over_time = self.over_time.or(outer.over_time);
        self.sum |= outer.sum;
        if self.values.is_none() {
            self.values.clone_from(&outer.values);
        }
        // Each of these three says where names are looked up.
        if self.db.is_none() && self.from.is_none() && self.store.is_none() {
            self.db.clone_from(&outer.db);
            self.from.clone_from(&outer.from);
            self.store.clone_from(&outer.store);
        }
    }

    pub(crate) fn color(&self) -> ColorMode {
        self.color.unwrap_or(ColorMode::Auto)
    }

    /// Maximum size of a profile after decompression, in bytes.
    pub(crate) fn max_inflated(&self) -> u64 {
        self.max_inflated.unwrap_or(DEFAULT_MAX_INFLATED)
    }

    pub(crate) fn over_time(&self) -> OverTimeMode {
        self.over_time.unwrap_or(OverTimeMode::Last)
    }

    /// Where stored moments are looked up.
    pub(crate) fn backend(&self) -> StoreBackend {
        match (&self.from, &self.store) {
            (Some(place), _) => StoreBackend::Batches(place.clone()),
            (None, Some(address)) => StoreBackend::ClickHouse(address.clone()),
            (None, None) => StoreBackend::Database(self.db()),
        }
    }

    /// The database that was typed.
    pub(crate) fn typed_db(&self) -> Option<&Path> {
        self.db.as_deref()
    }

    /// The database: as typed, otherwise as the environment says (an empty variable says nothing),
    /// otherwise in the current folder.
    pub(crate) fn db(&self) -> PathBuf {
        let set = || std::env::var_os("HEAPPROF_DB").filter(|db| !db.is_empty());
        let db = self.db.clone().or_else(|| Some(set()?.into()));
        db.unwrap_or_else(|| "heapprof.db".into())
    }
}
