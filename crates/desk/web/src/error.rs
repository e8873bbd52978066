//! What can be wrong with a report: rows that contradict each other, and numbers that do not fit.

/// Why a report cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A number is larger than the page's numbers can be without loss.
    #[error("{what} is {value}, which the page cannot show exactly")]
    TooLarge {
        /// What the number is.
        what: &'static str,
        /// The number.
        value: i128,
    },
    /// A number with a fraction is infinite or not a number.
    #[error("{what} is not a number")]
    NotFinite {
        /// What the number is.
        what: &'static str,
    },
    /// A row refers to a row that is not there.
    #[error("{what} {row} refers to {refers} {index}, of which there are {count}")]
    MissingRow {
        /// The kind of the row that refers.
        what: &'static str,
        /// Its number.
        row: usize,
        /// The kind of the row that it refers to.
        refers: &'static str,
        /// The number that it gives.
        index: usize,
        /// How many rows of that kind there are.
        count: usize,
    },
    /// A node does not follow its parent or a descendant of its parent.
    #[error("node {0} is not in pre-order")]
    NotPreOrder(usize),
    /// Rows that must ascend do not.
    #[error("{what} {row} does not come after the one before it")]
    NotAscending {
        /// What the rows are.
        what: &'static str,
        /// The number of the first row that is wrong.
        row: usize,
    },
    /// A list is longer or shorter than the one it belongs to.
    #[error("{what} has {found} entries instead of {wanted}")]
    WrongLength {
        /// What the list is.
        what: &'static str,
        /// How many entries it has.
        found: usize,
        /// How many it must have.
        wanted: usize,
    },
    /// There is no sample type, or none has the name that is given.
    #[error("there is no sample type {0:?}")]
    NoSuchType(String),
    /// A report without a snapshot shows nothing.
    #[error("there is no snapshot")]
    NoSnapshot,
}
