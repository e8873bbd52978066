//! Errors in reports: rows that contradict each other, and numbers that are too large.

/// The reason why a report can't be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A number is too large for the page to show exactly.
    #[error("{what} is {value}, which the page cannot show exactly")]
    TooLarge {
        /// The meaning of the number.
        what: &'static str,
        /// The number.
        value: i128,
    },
    /// A number with a fraction is infinite or not a number.
    #[error("{what} is not a number")]
    NotFinite {
        /// The meaning of the number.
        what: &'static str,
    },
    /// A row refers to a row that does not exist.
    #[error("{what} {row} refers to {refers} {index}, of which there are {count}")]
    MissingRow {
        /// The kind of the referring row.
        what: &'static str,
        /// The number of the referring row.
        row: usize,
        /// The kind of the missing row.
        refers: &'static str,
        /// The number of the missing row.
        index: usize,
        /// The number of existing rows of the kind `refers`.
        count: usize,
    },
    /// A node does not follow its parent or a descendant of its parent.
    #[error("node {0} is not in pre-order")]
    NotPreOrder(usize),
    /// Rows that must ascend do not.
    #[error("{what} {row} does not come after the one before it")]
    NotAscending {
        /// The meaning of the rows.
        what: &'static str,
        /// The number of the first row that is wrong.
        row: usize,
    },
    /// A list does not have as many entries as the list that it belongs to.
    #[error("{what} has {found} entries instead of {wanted}")]
    WrongLength {
        /// The meaning of the list.
        what: &'static str,
        /// The number of entries that the list has.
        found: usize,
        /// The number of entries that the list must have.
        wanted: usize,
    },
    /// No sample type exists, or none has the given name.
    #[error("there is no sample type {0:?}")]
    NoSuchType(String),
    /// The report has no snapshot, so there is nothing to show.
    #[error("there is no snapshot")]
    NoSnapshot,
}
