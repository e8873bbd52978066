//! The data of the view: the feed's state, and the answers that the screen shows.

use std::collections::HashMap;
use std::sync::Arc;

use super::answer::{GrownFunction, ViewAnswer, ViewDetail, ViewFunction, ViewNode, ViewQuestion};
use super::feed::{FeedNews, ViewSnapshot};

/// Flat values by function.
pub(crate) type FlatByFunction = HashMap<ViewFunction, i64>;

/// The data of the view.
#[derive(Debug, Default)]
pub(crate) struct ViewData {
    pub(crate) news: FeedNews,
    pub(crate) answer: Option<ViewAnswer>,
    /// The flat values with which rows are compared.
    pub(crate) base: FlatByFunction,
    /// The time of the values in `base`, in seconds since the program began.
    pub(crate) base_seconds: Option<f64>,
    /// The moment that the user marked.
    pub(crate) mark: Option<Arc<ViewSnapshot>>,
    /// Flat values by function at the last moments, the oldest first.
    pub(crate) trend: Vec<FlatByFunction>,
    pub(crate) detail: Option<ViewDetail>,
    pub(crate) nodes: Vec<ViewNode>,
    pub(crate) grown: Vec<GrownFunction>,
    /// The error, if there is no answer.
    pub(crate) trouble: Option<String>,
    pub(super) answered: Option<(u64, ViewQuestion)>,
    pub(super) based: Option<(u64, ViewQuestion)>,
    pub(super) trended: Vec<(u64, ViewQuestion)>,
    pub(super) detailed: Option<(u64, ViewQuestion, ViewFunction)>,
    pub(super) treed: Option<(u64, ViewQuestion)>,
    pub(super) grew: Option<(u64, ViewQuestion)>,
}

impl ViewData {
    /// Returns a function's values at the last moments.
    pub(super) fn trend_of(&self, function: &ViewFunction) -> Vec<i64> {
        let flat = |moment: &FlatByFunction| moment.get(function).copied().unwrap_or(0);
        self.trend.iter().map(flat).collect()
    }
}
