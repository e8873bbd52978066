//! The atomic types of the data that threads share while they have the ledger open: those of the
//! processor, or in a model test those of shuttle, which decides at each access which thread goes
//! on.

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
};
