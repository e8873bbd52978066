//! The options of a report that can fail.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Exit with 1 when this rule breaks; may be repeated
    #[arg(long, value_name = "RULE")]
    pub(crate) fail_if: Vec<String>,
    /// Judge estimates as if they were exact, so that sampling noise can break a rule too
    #[arg(long, requires = "fail_if")]
    pub(crate) ignore_spread: bool,
}
