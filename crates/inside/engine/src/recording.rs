//! A recording from start to stop: its dumps, and how forks, signals and unloaded code affect it.

pub(crate) mod account;
#[cfg(not(shuttle))]
mod audit;
pub(crate) mod clock;
mod code;
#[cfg(not(shuttle))]
mod delay;
pub(crate) mod dumps;
pub(crate) mod early_ends;
pub(crate) mod fork;
#[cfg(not(shuttle))]
mod last_reading;
pub(crate) mod lifecycle;
pub(crate) mod lines;
pub(crate) mod live;
#[cfg(all(test, shuttle))]
mod model;
mod notes;
pub(crate) mod pools;
#[cfg(not(shuttle))]
pub(crate) mod rights;
pub(crate) mod scripts;
#[cfg(not(shuttle))]
mod shared_ledger;
pub(crate) mod signals;
mod small_child;
pub(crate) mod snapshot;
pub(crate) mod sums;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod unload;
pub(crate) mod values;
