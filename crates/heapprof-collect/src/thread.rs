//! What a thread has, and its way into the engine and out of it.

pub(crate) mod entry;
pub(crate) mod state;
