//! A recording from start to stop, its dumps, and where they are written.

pub(crate) mod output;
pub(crate) mod recording;
pub(crate) mod snapshot;
pub(crate) mod text;
