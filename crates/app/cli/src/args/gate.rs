//! The options of a report that can fail.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Exit with 1 if this condition is true; may be repeated
    #[arg(long, value_name = "RULE")]
    pub(crate) fail_if: Vec<String>,
    /// Judge estimates as if they were exact; sampling noise alone can then make a condition true
    #[arg(long, requires = "fail_if")]
    pub(crate) ignore_spread: bool,
}
