//! The command line of `web`, the page that a server answers.

use std::path::PathBuf;

use clap::Args;

use super::ProfileArgs;
use super::list::SourceArgs;
use crate::name;

/// The most nodes that are sent at once, unless it is said otherwise.
pub(crate) const MAX_NODES: usize = 100_000;

#[derive(Debug, Args)]
pub(crate) struct WebArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
    /// Compare with this profile; may be repeated
    #[arg(long, value_name = "PROFILE", value_parser = name::parser())]
    pub(crate) base: Vec<String>,
    /// The port to listen on; 0 takes any free port
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// Print the address, and do not open a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Accept profiles uploaded from the browser
    #[arg(long)]
    pub(crate) upload: bool,
    /// The largest number of nodes of the call tree that are sent at once; the page requests more
    /// when you open an (other) node
    #[arg(long, value_name = "N", default_value_t = MAX_NODES)]
    pub(crate) max_nodes: usize,
    /// Show source lines and instructions, from the files and binaries that a profile names
    #[arg(long)]
    pub(crate) source: bool,
    /// A folder with binaries or debug files for --source; may be repeated
    #[arg(long, value_name = "DIR", requires = "source")]
    pub(crate) debug_dir: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) source_files: SourceArgs,
}
