//! Notes for the user about filters that have no effect.

use std::fmt;

use heapprof_text::MismatchReason;

/// A note about the filters of a query. It displays as one line, which names the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterNote {
    /// A filter matches no frame.
    NoFrame {
        /// The filter's name, as in `show-from`.
        filter: &'static str,
        /// The expression.
        text: String,
        /// The likely reason.
        reason: Option<MismatchReason>,
    },
    /// An expression for wrappers matches no function.
    NoWrapper(String),
    /// No sample has the labels that the filters require.
    NoSample,
    /// An expression in the profile itself can't be read.
    WrongExpression {
        /// Kind of the expression.
        what: &'static str,
        /// The expression.
        text: String,
        /// Description of the error in the expression.
        why: String,
    },
}

impl fmt::Display for FilterNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFrame {
                filter,
                text,
                reason,
            } => {
                write!(f, "{filter} {text:?} matches no frame")?;
                reason.iter().try_for_each(|reason| reason.fmt(f))
            }
            Self::NoWrapper(text) => write!(f, "wrappers {text:?} matches no function"),
            Self::NoSample => f.write_str("no sample has the requested labels"),
            Self::WrongExpression { what, text, why } => {
                write!(f, "the profile's {what} {text:?} is {why}; it is ignored")
            }
        }
    }
}
