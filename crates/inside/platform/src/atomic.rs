//! The atomic types for data that threads share while they have the ledger open. They are the
//! standard types, except in a model test: there, shuttle's types decide at each access which
//! thread goes on.

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
