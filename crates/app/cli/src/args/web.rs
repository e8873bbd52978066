//! The command line of `web`, the page that a server answers.

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
    /// The port to listen on; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// Print the address, and open no browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Take profiles that the browser's user sends
    #[arg(long)]
    pub(crate) upload: bool,
    /// The most nodes of the call tree that are sent at once; the page asks for more where it is
    /// opened
    #[arg(long, value_name = "N", default_value_t = MAX_NODES)]
    pub(crate) max_nodes: usize,
    /// Show the text of source lines
    #[arg(long)]
    pub(crate) source: bool,
    #[command(flatten)]
    pub(crate) source_files: SourceArgs,
}
