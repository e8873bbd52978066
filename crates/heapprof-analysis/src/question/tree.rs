//! The call tree of a question: how it is cut, and how it is made once.

use std::collections::HashMap;

use heapprof_profile::StringId;
use heapprof_totals::call_tree::{self, CallTree, NO_PARENT, Shape, Stacks};

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

/// How much larger the least share is at each step.
const STEP: f64 = 2.0;
/// The first share that is tried where all nodes are too many.
const FIRST: f64 = 1e-6;
/// The share that is tried first is this, divided by the most nodes. Trees of random stacks have
/// about as many nodes then.
const GUESS: f64 = 8.0;

/// The most nodes of a tree of what another left out.
const MOST_BELOW: usize = 20_000;

/// Some of the stacks of a question, with the sum of each block over them.
pub(crate) struct Below {
    pub(crate) tree: CallTree,
    /// The signed sum of each block.
    pub(crate) net: Vec<i64>,
}

impl Question {
    /// What the filters keep of each block, regardless of sign.
    fn whole(&self) -> Vec<i64> {
        // A share is of what the filters keep. Otherwise a narrow filter would leave nothing to
        // see.
        if self.parts.iter().all(|part| part.view.keeps_all()) {
            return self
                .blocks()
                .map(|(p, c)| self.parts[p].whole[c].total)
                .collect();
        }
        if self.stacks().value.iter().all(|&value| value >= 0) {
            return self.net();
        }
        // Equal stacks have cancelled, so that they do not say any more what was kept.
        self.blocks()
            .map(|(p, c)| self.totals(p).kept[c].total)
            .collect()
    }

    /// The stacks of all parts, as the tree is made of them.
    fn stacks(&self) -> &Stacks {
        self.stacks.get_or_init(|| self.entity_stacks().settled())
    }

    pub(crate) fn tree(&self) -> Result<&CallTree, Error> {
        let made = self.tree.get_or_init(|| {
            let all = (0..self.stacks().len() as u32).collect();
            self.grown(all, &self.whole(), self.tree_options.most)
        });
        made.as_ref().map_err(|e| e.clone().into())
    }

    /// The signed sum of each block over the stacks that the filters keep.
    pub(crate) fn net(&self) -> Vec<i64> {
        self.sums(0..self.stacks().len() as u32).0
    }

    /// The signed sum of each block over these stacks, and the sum regardless of sign.
    fn sums(&self, which: impl Iterator<Item = u32>) -> (Vec<i64>, Vec<i64>) {
        let stacks = self.stacks();
        let (mut net, mut whole) = (vec![0; stacks.width], vec![0; stacks.width]);
        // The totals of the parts bound these sums.
        for stack in which {
            for (at, &value) in stacks.values(stack as usize).iter().enumerate() {
                net[at] += value;
                whole[at] += value.abs();
            }
        }
        (net, whole)
    }

    /// What [`tree`](Self::tree) left out below functions of these names, from the root on: the
    /// tree of the stacks that pass nodes of that path, and then a node that is not there.
    pub(crate) fn tree_below(&self, path: &[String]) -> Result<Below, Error> {
        let which = self.left_out_below(path)?;
        let (net, whole) = self.sums(which.iter().copied());
        let most = self.tree_options.most.map(|most| most.min(MOST_BELOW));
        let tree = self.grown(which, &whole, most)?;
        Ok(Below { tree, net })
    }

    fn left_out_below(&self, path: &[String]) -> Result<Vec<u32>, Error> {
        let tree = self.tree()?;
        // Equal texts have equal numbers.
        let asked: Option<Vec<StringId>> = path
            .iter()
            .map(|name| self.table.strings.find(name))
            .collect();
        let Some(asked) = asked else {
            return Ok(Vec::new());
        };
        let name = |entity: u32| {
            let entity = self.table.entity[entity as usize];
            self.table.function[entity.function as usize].name
        };
        // The nodes of the path, and those right below it, by their parent and their entity.
        let mut on_path = vec![false; tree.node.len()];
        let mut known = HashMap::new();
        for (at, node) in (0..).zip(&tree.node) {
            let follows = node.parent == NO_PARENT || on_path[node.parent as usize];
            if !follows {
                continue;
            }
            let wanted = asked.get(node.depth as usize);
            on_path[at as usize] = wanted.is_some_and(|wanted| name(node.entity) == *wanted);
            if wanted.is_none() || on_path[at as usize] {
                known.insert((node.parent, node.entity), at);
            }
        }
        let stacks = self.stacks();
        let is_left_out = |stack: &u32| {
            let stack = stacks.get(*stack as usize);
            let Some((next, above)) = stack
                .split_at_checked(stack.len().wrapping_sub(asked.len()))
                .and_then(|(below, above)| Some((below.last()?, above)))
            else {
                return false;
            };
            let mut node = NO_PARENT;
            for &entity in above.iter().rev() {
                match known.get(&(node, entity)) {
                    Some(&found) => node = found,
                    None => return false,
                }
            }
            !known.contains_key(&(node, *next))
        };
        Ok((0..stacks.len() as u32).filter(is_left_out).collect())
    }

    /// Makes a tree of these stacks. `whole` is the sum of each block that shares are of.
    fn grown(
        &self,
        which: Vec<u32>,
        whole: &[i64],
        most: Option<usize>,
    ) -> Result<CallTree, heapprof_totals::Error> {
        let stacks = self.stacks();
        let TreeOptions { reverse, least, .. } = self.tree_options;
        // The steps are the least share that was asked for, and then from `FIRST` on.
        let share = |step: i32| match step {
            0 => least,
            step => (least * STEP).max(FIRST) * STEP.powi(step - 1),
        };
        let needed = |step: i32| -> Vec<i64> {
            let part = |&whole: &i64| match share(step) {
                0.0 => 0,
                share => ((whole as f64 * share).ceil() as i64).max(1),
            };
            whole.iter().map(part).collect()
        };
        let build = |which: Vec<u32>, step: i32| {
            let least = &needed(step);
            let rank = self.ranks();
            call_tree::build(
                stacks,
                which,
                &Shape {
                    rank,
                    reverse,
                    least,
                },
            )
        };
        let most = most.unwrap_or(usize::MAX);
        let frames: usize = which
            .iter()
            .map(|&stack| stacks.get(stack as usize).len())
            .sum();
        if frames <= most {
            return build(which, 0);
        }
        // Most nodes of a large tree are too small to be seen, and building them takes most of the
        // time. So the first tree leaves out what is far too small.
        let mut step = 0;
        while share(step) * (most as f64) < GUESS {
            step += 1;
        }
        let mut tree = build(which.clone(), step)?;
        let mut back = 1;
        while tree.node.len() <= most && step > 0 {
            step = (step - back).max(0);
            back *= 2;
            tree = build(which.clone(), step)?;
        }
        if tree.node.len() > most {
            while tree.heavier(&needed(step)) > most && share(step) < 1.0 {
                step += 1;
            }
            tree.cut(&needed(step));
        }
        Ok(tree)
    }
}
