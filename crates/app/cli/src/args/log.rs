//! The options of a log of events, of `attach` and `record`.

use std::path::PathBuf;

use clap::Args;

use super::size::growth;

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Write each allocation and each free as text, for `leaks --log`; implies --exact
    #[arg(long, value_name = "FILE", conflicts_with = "period")]
    pub(crate) log: Option<PathBuf>,
    /// The largest size of the log; later events are only counted
    #[arg(long, value_name = "SIZE", requires = "log", default_value = "1GiB")]
    #[arg(value_parser = growth, hide_short_help = true)]
    pub(crate) log_limit: u64,
}
