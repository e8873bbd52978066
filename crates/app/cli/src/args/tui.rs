//! The command line of `tui`.

use clap::Args;

use super::ProfileArgs;

#[derive(Debug, Args)]
pub(crate) struct TuiArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfileArgs,
}
