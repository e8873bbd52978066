//! What the view knows: the feed's news, and the answers to what is to be seen of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::answer::{Answer, Ask, Detail, Function, Grown, Node};
use super::feed::{News, Snapshot};

/// What rows are compared with: flat by function.
pub(crate) type Base = HashMap<Function, i64>;

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct Data {
    pub(crate) news: News,
    pub(crate) answer: Option<Answer>,
    /// What rows are compared with.
    pub(crate) base: Base,
    /// When that was: seconds since the program began.
    pub(crate) base_seconds: Option<f64>,
    /// The moment that somebody marked.
    pub(crate) mark: Option<Arc<Snapshot>>,
    /// Flat by function at the last moments, the oldest first.
    pub(crate) trend: Vec<Base>,
    pub(crate) detail: Option<Detail>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) grown: Vec<Grown>,
    /// Why there is no answer.
    pub(crate) trouble: Option<String>,
    pub(super) answered: Option<(u64, Ask)>,
    pub(super) based: Option<(u64, Ask)>,
    pub(super) trended: Vec<(u64, Ask)>,
    pub(super) detailed: Option<(u64, Ask, Function)>,
    pub(super) treed: Option<(u64, Ask)>,
    pub(super) grew: Option<(u64, Ask)>,
}

impl Data {
    /// What a function held at the last moments.
    pub(super) fn trend_of(&self, function: &Function) -> Vec<i64> {
        let flat = |moment: &Base| moment.get(function).copied().unwrap_or(0);
        self.trend.iter().map(flat).collect()
    }
}
