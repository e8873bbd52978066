//! Errors that a front end may want to add advice to, or to say in its own words.

/// What is wrong with a place of profiles.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The address of a ClickHouse has a user or a password in it.
    #[error(
        "the address has a user or a password in it, which others may see; set \
         HEAPPROF_STORE_USER and HEAPPROF_STORE_PASSWORD instead"
    )]
    UserInAddress,
    /// A folder or an address has no batches.
    #[error("{0}: has no profiles")]
    NoBatches(String),
}
