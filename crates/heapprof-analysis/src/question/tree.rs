//! The call tree of a question: how it is cut, and how it is made once.

use heapprof_totals::call_tree::{self, CallTree, Shape};

use super::Question;
use crate::error::Error;

/// What the tree should be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeOptions {
    /// Whether it grows from the leaves up.
    pub reverse: bool,
    /// The least share of a total that a node needs to be in the tree; 0 keeps all nodes.
    pub least: f64,
    /// The most nodes. If there are more, `least` is raised until there are not.
    pub most: Option<usize>,
}

/// How much larger the least share is at each attempt.
const STEP: f64 = 2.0;
/// The first share that is tried where all nodes are too many.
const FIRST: f64 = 1e-6;

impl Question {
    /// What a node needs of each total, if it needs this share of one.
    fn least(&self, share: f64) -> Vec<i64> {
        let least = |(p, c): (usize, usize)| {
            // The share is of what the filters keep. Otherwise a narrow filter would leave nothing
            // to see.
            let kept = match self.parts[p].view.keeps_all() {
                true => self.parts[p].whole[c].total,
                false => self.totals(p).kept[c].total,
            };
            match share {
                0.0 => 0,
                share => ((kept as f64 * share).ceil() as i64).max(1),
            }
        };
        self.blocks().map(least).collect()
    }

    pub(crate) fn tree(&self) -> Result<&CallTree, Error> {
        let made = self.tree.get_or_init(|| {
            let stacks = self.entity_stacks().settled();
            let of = |least: &[i64]| {
                let shape = Shape {
                    rank: self.ranks(),
                    reverse: self.tree_options.reverse,
                    least,
                };
                call_tree::build(&stacks, &shape)
            };
            let mut share = self.tree_options.least;
            let mut least = self.least(share);
            let all = of(&least)?;
            let most = self.tree_options.most.unwrap_or(usize::MAX);
            if all.node.len() <= most {
                return Ok(all);
            }
            while all.heavier(&least) > most && share < 1.0 {
                share = (share * STEP).max(FIRST);
                least = self.least(share);
            }
            of(&least)
        });
        made.as_ref().map_err(|e| e.clone().into())
    }
}
