//! State of the threads: their tables, names and kernel ids.

pub(crate) mod names;
pub(crate) mod state;
