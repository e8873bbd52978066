//! Questions about many moments of many processes: which moments are chosen, what their sum is at a
//! time, and how it grew.
//!
//! A *moment* is a stored profile. Its *labels* say which service, host and build it comes from.
//! Moments with the same labels, except the build, are a *series*. The moments of one process are a
//! part of a series. `state.rs` decides which moments are added up for a time: the last one of each
//! process that was running.

mod growth;
mod matched_functions;
mod selector;
mod series_list;
mod state;
mod sum;

pub use growth::{SeriesGrowth, SeriesGrowthRow, series_growth};
pub use selector::{MomentSelector, SelectorError, is_selector, parse_time};
pub use series_list::{SeriesSummary, list_series};
pub use state::SeriesProcesses;
pub use sum::{
    MomentAggregation, MomentSelection, choose_moments, is_counter, roll_up, selection_from_moments,
};
