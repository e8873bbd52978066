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
    /// No symbol of an object file has a name that matches this regular expression.
    #[error("no matches found for regexp {0}")]
    NoSymbol(String),
    /// No object file has a symbol at this address.
    #[error("no matches found for address {0:#x}")]
    NoSymbolAt(u64),
    /// No sample is in the symbols at this address.
    #[error(
        "address {0:#x} found in binary, but the corresponding symbols do not have samples in the \
         profile"
    )]
    NoSamplesAt(u64),
    /// A tool that reads object files failed.
    #[error("{0}")]
    ObjectTool(String),
    /// A value is negative, which callgrind's format cannot hold.
    #[error(
        "has negative values, as differences do, and callgrind's format can't hold them; convert \
         the profiles it was made from"
    )]
    NegativeValue,
}
