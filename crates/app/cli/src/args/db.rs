//! The commands of a database of profiles: `db load` and so on. Each also has its old name, without
//! `db`.

use clap::Subcommand;

use super::{ExportArgs, ImportArgs, LoadArgs, LsArgs, PruneArgs, RmArgs, SchemaArgs, SeriesArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Put profiles into the database
    #[command(
        after_help = "Example: heapprof db load monday.pb.gz tuesday.pb.gz && heapprof diff monday \
                      tuesday"
    )]
    Load(LoadArgs),
    /// List the profiles in the database
    #[command(after_help = "Example: heapprof db ls")]
    Ls(LsArgs),
    /// List the series in the database: its services and hosts, and since when it has them
    #[command(
        after_help = "A SELECTOR is a list of conditions, separated by commas: KEY=VALUE, \
                      KEY!=VALUE, KEY~REGEX or KEY!~REGEX for labels, and since=2h, \
                      until=2026-11-20 or last=60 (moments of each process) for the \
                      time.\n\nExample: heapprof db series service=shop"
    )]
    Series(SeriesArgs),
    /// Thin out, combine or remove old moments in the database
    #[command(
        after_help = "Moments that no --keep rule keeps are removed.\n\nExample: heapprof db prune \
                      service=shop --keep 7d --keep 1h=30d --keep 1d=365d"
    )]
    Prune(PruneArgs),
    /// Remove profiles from the database and give their space back
    #[command(after_help = "Example: heapprof db rm monday")]
    Rm(RmArgs),
    /// Write profiles from the database as Parquet files, for other engines
    #[command(
        after_help = "Engines such as DuckDB, DataFusion, Spark and ClickHouse read the files. \
                      They do not see a batch until it is complete.\n\nExample: heapprof db export \
                      service=shop --parquet fleet"
    )]
    Export(ExportArgs),
    /// Load the profiles from a folder that export wrote
    #[command(after_help = "Example: heapprof db import fleet")]
    Import(ImportArgs),
    /// Show the tables that sql can read
    #[command(after_help = "Example: heapprof db schema")]
    Schema(SchemaArgs),
}
