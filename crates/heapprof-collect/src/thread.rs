//! What a thread has while it lives.

pub(crate) mod state;
