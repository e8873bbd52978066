//! The atomic types of the data that threads share while they have the ledger open. They are the
//! standard ones, or in a model test those of shuttle, which decides at each access which thread
//! goes on.

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
