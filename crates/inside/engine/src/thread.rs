//! Data about a thread while it lives.

pub(crate) mod names;
pub(crate) mod state;
