//! Errors while the numbers of a profile are computed.

/// An error that displays as one line. The caller adds the name of the profile.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TotalsError {
    /// A filter is neither a regular expression nor a range.
    #[error("{filter} {text:?}: {why}")]
    Filter {
        /// Name of the filter, e.g. `focus`.
        filter: &'static str,
        /// The text of the filter.
        text: String,
        /// Description of the error in the text.
        why: String,
    },
    /// A total does not fit in 64 bits.
    #[error(
        "the total of {sample_type} does not fit in 64 bits, so none of its numbers can be trusted"
    )]
    Overflow {
        /// The name of the sample type.
        sample_type: String,
    },
    /// A difference or a scaled value does not fit in 64 bits. The text names the value.
    #[error("{0} does not fit in 64 bits")]
    BeyondRange(String),
}
