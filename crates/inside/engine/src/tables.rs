//! Tables that the other parts of the engine use: growing arrays, hash tables, the numbers of
//! stacks, counters, samples, the log of events.

pub(crate) mod chunks;
pub(crate) mod counters;
pub(crate) mod filter;
pub(crate) mod log;
pub(crate) mod moments;
pub(crate) mod probe_table;
pub(crate) mod sampler;
pub(crate) mod script_frames;
pub(crate) mod sizes;
pub(crate) mod spread;
pub(crate) mod stacks;
pub(crate) mod word_memory;
