//! Data that a thread has while it lives.

pub(crate) mod names;
pub(crate) mod state;
