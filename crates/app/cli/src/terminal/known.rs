//! What the view knows: the feed's news, and the answers to what is to be seen of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::answer::{GrownFunction, ViewAnswer, ViewDetail, ViewFunction, ViewNode, ViewQuestion};
use super::feed::{FeedNews, ViewSnapshot};

/// What rows are compared with: flat by function.
pub(crate) type FlatByFunction = HashMap<ViewFunction, i64>;

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct ViewData {
    pub(crate) news: FeedNews,
    pub(crate) answer: Option<ViewAnswer>,
    /// What rows are compared with.
    pub(crate) base: FlatByFunction,
    /// When that was: seconds since the program began.
    pub(crate) base_seconds: Option<f64>,
    /// The moment that somebody marked.
    pub(crate) mark: Option<Arc<ViewSnapshot>>,
    /// Flat by function at the last moments, the oldest first.
    pub(crate) trend: Vec<FlatByFunction>,
    pub(crate) detail: Option<ViewDetail>,
    pub(crate) nodes: Vec<ViewNode>,
    pub(crate) grown: Vec<GrownFunction>,
    /// Why there is no answer.
    pub(crate) trouble: Option<String>,
    pub(super) answered: Option<(u64, ViewQuestion)>,
    pub(super) based: Option<(u64, ViewQuestion)>,
    pub(super) trended: Vec<(u64, ViewQuestion)>,
    pub(super) detailed: Option<(u64, ViewQuestion, ViewFunction)>,
    pub(super) treed: Option<(u64, ViewQuestion)>,
    pub(super) grew: Option<(u64, ViewQuestion)>,
}

impl ViewData {
    /// What a function held at the last moments.
    pub(super) fn trend_of(&self, function: &ViewFunction) -> Vec<i64> {
        let flat = |moment: &FlatByFunction| moment.get(function).copied().unwrap_or(0);
        self.trend.iter().map(flat).collect()
    }
}
