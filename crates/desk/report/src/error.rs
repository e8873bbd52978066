//! Why a report could not be written.

/// Why a report could not be written. Each error is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The unit does not exist, or does not fit the sample type.
    #[error("--unit {unit:?}: {why}")]
    Unit {
        /// The unit as given.
        unit: String,
        /// What is wrong with it.
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
    /// A process's memory is known only as a whole.
    #[error(
        "the parts of the process's memory are not known at both moments; ask as its user or as root"
    )]
    NoParts,
    /// There is nothing that a picture could show.
    #[error("{0}")]
    Empty(String),
}

impl From<csv::Error> for ReportError {
    fn from(error: csv::Error) -> Self {
        // An error of the file is passed on as such, because callers look for a closed pipe.
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
        // An error of the file is passed on as such, as above.
        match error.is_io() {
            true => ReportError::Io(error.into()),
            false => ReportError::Json(error),
        }
    }
}
