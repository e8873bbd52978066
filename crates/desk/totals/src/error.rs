//! Why the numbers of a profile could not be worked out.

/// One line each; the caller adds which profile it speaks of.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TotalsError {
    /// A filter is not a regular expression or range.
    #[error("--{option} {text:?}: {why}")]
    Filter {
        /// The option, without dashes.
        option: &'static str,
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Sums beyond 64 bits.
    #[error(
        "the total of {sample_type} does not fit in 64 bits, so no number of it can be trusted; \
         choose another --sample-type"
    )]
    Overflow {
        /// The sample type.
        sample_type: String,
    },
    /// A difference or scaled value beyond 64 bits.
    #[error("{0} does not fit in 64 bits")]
    BeyondRange(String),
}
