//! Errors that keep a report from being written.

/// An error that keeps a report from being written, as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The unit does not exist, or does not fit the sample type.
    #[error("unit {unit:?}: {why}")]
    Unit {
        /// The unit that was given.
        unit: String,
        /// What is wrong with the unit.
        why: String,
    },
    /// The numbers could not be computed.
    #[error(transparent)]
    Analysis(#[from] heapprof_analysis::AnalysisError),
    /// The profile could not be written.
    #[error(transparent)]
    Profile(#[from] heapprof_profile::Error),
    /// CSV could not be made.
    #[error(transparent)]
    Csv(csv::Error),
    /// JSON could not be made.
    #[error(transparent)]
    Json(serde_json::Error),
    /// The parts of a process's memory are not known; only the total is.
    #[error(
        "the parts of the process's memory are unknown at one or both moments; run heapprof as \
         the process's user or as root"
    )]
    NoParts,
    /// A comparison can't be drawn, because one of its profiles has negative values.
    #[error("a side has negative values, which have no width in a comparison")]
    NegativeSide,
    /// A picture would be empty.
    #[error("{0}")]
    Empty(String),
}

impl From<csv::Error> for ReportError {
    fn from(error: csv::Error) -> Self {
        // An I/O error is passed on as one, because callers check it for a closed pipe.
        match error.is_io_error() {
            true => match error.into_kind() {
                csv::ErrorKind::Io(error) => ReportError::Io(error),
                kind => ReportError::Io(std::io::Error::other(format!("{kind:?}"))),
            },
            false => ReportError::Csv(error),
        }
    }
}

impl From<serde_json::Error> for ReportError {
    fn from(error: serde_json::Error) -> Self {
        // An I/O error is passed on as one, because callers check it for a closed pipe.
        match error.is_io() {
            true => ReportError::Io(error.into()),
            false => ReportError::Json(error),
        }
    }
}
