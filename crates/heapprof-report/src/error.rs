//! Why a report could not be written.

/// One line each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Writing failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The unit does not exist, or does not fit the sample type.
    #[error("--unit {unit:?}: {why}")]
    Unit {
        /// As given.
        unit: String,
        /// What is wrong.
        why: String,
    },
    /// CSV could not be made.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// JSON could not be made.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// There is nothing a picture could show.
    #[error("{0}")]
    Empty(String),
}
