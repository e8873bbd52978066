//! Why a report of pprof's or jeprof's could not be written.

/// One line each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropinError {
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The numbers could not be worked out.
    #[error(transparent)]
    Totals(#[from] heapprof_totals::TotalsError),
    /// The profile could not be written.
    #[error(transparent)]
    Profile(#[from] heapprof_profile::Error),
    /// No node has a name that is looked for.
    #[error("no matches found for regexp: {0}")]
    NoMatch(String),
    /// Callgrind's format holds no decreases.
    #[error(
        "has negative values, as differences have, and callgrind's format holds none; convert the \
         profiles it was made of"
    )]
    NegativeValue,
}
