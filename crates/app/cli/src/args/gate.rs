//! The options of a report that can fail.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Exit with 1 if this rule breaks (its condition is true); may be repeated
    #[arg(long, value_name = "RULE")]
    pub(crate) fail_if: Vec<String>,
    /// Judge estimates as if they were exact; noise of sampling can then break a rule, too
    #[arg(long, requires = "fail_if")]
    pub(crate) ignore_spread: bool,
}
