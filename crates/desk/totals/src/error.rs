//! Why the numbers of a profile could not be worked out.

/// An error in one line. The caller adds which profile it is about.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TotalsError {
    /// A filter is neither a regular expression nor a range.
    #[error("--{option} {text:?}: {why}")]
    Filter {
        /// The option, without dashes.
        option: &'static str,
        /// The text that was given.
        text: String,
        /// What is wrong with the text.
        why: String,
    },
    /// A total does not fit in 64 bits.
    #[error(
        "the total of {sample_type} does not fit in 64 bits, so no number of it can be trusted"
    )]
    Overflow {
        /// The name of the sample type.
        sample_type: String,
    },
    /// A difference or a scaled value does not fit in 64 bits. The text names it.
    #[error("{0} does not fit in 64 bits")]
    BeyondRange(String),
}
