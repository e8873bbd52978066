//! Reasons why a pprof or jeprof report could not be written.

/// Reason why a report could not be written. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropinError {
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The sums could not be computed.
    #[error(transparent)]
    Totals(#[from] heapprof_totals::TotalsError),
    /// The profile could not be written.
    #[error(transparent)]
    Profile(#[from] heapprof_profile::Error),
    /// No node has a name that matches this regular expression.
    #[error("no matches found for regexp: {0}")]
    NoMatch(String),
    /// A value is negative, which callgrind's format cannot hold.
    #[error(
        "has negative values, as differences do, and callgrind's format can't hold them; convert \
         the profiles it was made from"
    )]
    NegativeValue,
}
