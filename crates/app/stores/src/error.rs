//! Errors to which a front end may add advice, or which it may put into other words.

/// An error in the address or the content of a store.
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
