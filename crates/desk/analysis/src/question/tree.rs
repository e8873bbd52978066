//! Builds the call tree of a question once, and chooses the nodes that are cut.

use std::collections::HashMap;

use heapprof_profile::StringId;
use heapprof_totals::call_tree::{self, CallTree, EntityStacks, NO_PARENT, TreeShape};

use super::ProfileQuestion;
use crate::error::AnalysisError;

/// The options of a call tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeOptions {
    /// Whether the tree starts from the leaves of the stacks.
    pub reverse: bool,
    /// The least share of a total that a node needs to be in the tree; 0 keeps all nodes.
    pub least: f64,
    /// The largest number of nodes. If there are more, `least` is raised until they fit.
    pub most: Option<usize>,
}

/// Factor by which [`TreeOptions::least`] is raised in each step.
const SHARE_STEP_FACTOR: f64 = 2.0;
/// Smallest value to which [`TreeOptions::least`] is raised.
const MIN_RAISED_SHARE: f64 = 1e-6;
/// Least product of [`TreeOptions::most`] and the share that is tried first. With this product,
/// trees of random stacks have about `most` nodes.
const NODES_TIMES_SHARE: f64 = 8.0;

/// Largest number of nodes in a tree of the stacks that another tree left out.
const MAX_BELOW_NODES: usize = 20_000;

/// A function of a path: a name, and a file if the name is in several files.
type PathStep = (StringId, Option<StringId>);

/// A tree of some of a question's stacks, with the sum of each block over these stacks.
pub(crate) struct TreeBelow {
    pub(crate) tree: CallTree,
    /// The signed sum of each block.
    pub(crate) net: Vec<i64>,
}

impl ProfileQuestion {
    /// Returns the sum of each block over the samples that the filters keep, regardless of sign.
    fn whole(&self) -> Vec<i64> {
        // Shares are of the sum that the filters keep. Otherwise a narrow filter would leave
        // nothing to see.
        if self.parts.iter().all(|part| part.view.keeps_all()) {
            return self
                .blocks()
                .map(|(p, c)| self.parts[p].whole[c].total)
                .collect();
        }
        if self.stacks().value.iter().all(|&value| value >= 0) {
            return self.net();
        }
        // Values of equal stacks have cancelled, so the stacks no longer show how much was kept.
        self.blocks()
            .map(|(p, c)| self.totals(p).kept[c].total)
            .collect()
    }

    /// Returns the stacks of all parts, in the form that the tree is built from.
    fn stacks(&self) -> &EntityStacks {
        self.stacks
            .get_or_init(|| self.entity_stacks().merge_equal())
    }

    pub(crate) fn tree(&self) -> Result<&CallTree, AnalysisError> {
        let made = self
            .tree
            .get_or_init(|| self.grow_tree(self.stacks(), &self.whole(), self.tree_options.most));
        made.as_ref().map_err(|e| e.clone().into())
    }

    /// Returns the signed sum of each value column, over the stacks that the filters keep.
    pub(crate) fn net(&self) -> Vec<i64> {
        // The totals of the parts bound these sums.
        sums(self.stacks()).0
    }

    /// Builds the tree of the stacks that [`tree`](Self::tree) left out below a path. A path lists
    /// functions from the root on. These stacks pass through the functions of the path, and then
    /// through a node that is not in [`tree`](Self::tree). If there are several paths, each one
    /// leads through the tree of the path before it.
    ///
    /// Each function of the path is one node in the tree, so that no nodes are spent on its lines.
    pub(crate) fn tree_below(&self, paths: &[Vec<String>]) -> Result<TreeBelow, AnalysisError> {
        let most = self.tree_options.most.map(|most| most.min(MAX_BELOW_NODES));
        let (mut below, mut tree) = (None::<EntityStacks>, None::<CallTree>);
        // The names on the path down to the left-out stacks, and the entities that stand for them.
        let (mut above, mut way) = (Vec::new(), Vec::new());
        for path in paths {
            let stacks = below.as_ref().unwrap_or_else(|| self.stacks());
            let tree_of = match &tree {
                Some(tree) => tree,
                None => self.tree()?,
            };
            let further = path.strip_prefix(&above[..]);
            let which = further.map_or(Vec::new(), |path| {
                self.find_left_out_stacks(stacks, tree_of, path)
            });
            if let (Some(further), Some(&first)) = (further, which.first()) {
                let of_first = stacks.get(first as usize);
                way.extend(of_first.iter().rev().take(further.len()));
            }
            let part = stacks.below(&which, path.len() - above.len().min(path.len()));
            tree = Some(self.grow_tree(&part, &sums(&part).1, most)?);
            below = Some(part);
            above.clone_from(path);
        }
        let part = below.unwrap_or_else(|| self.stacks().below(&[], 0));
        let (net, whole) = sums(&part);
        let tree = match part.len() {
            0 => CallTree {
                width: self.stacks().width,
                ..CallTree::default()
            },
            _ => tree.unwrap_or_default().put_below(&way, &net, &whole)?,
        };
        Ok(TreeBelow { tree, net })
    }

    /// Returns the stacks that pass through the nodes of `path`, and then through a node that is
    /// not in the tree.
    fn find_left_out_stacks(
        &self,
        stacks: &EntityStacks,
        tree: &CallTree,
        path: &[String],
    ) -> Vec<u32> {
        let asked: Option<Vec<PathStep>> = path.iter().map(|step| self.path_step(step)).collect();
        let Some(asked) = asked else {
            return Vec::new();
        };
        // These are the nodes of the path, and those right below it, by their parent and their
        // entity.
        let mut on_path = vec![false; tree.node.len()];
        let mut known = HashMap::new();
        for (at, node) in (0..).zip(&tree.node) {
            let follows = node.parent == NO_PARENT || on_path[node.parent as usize];
            if !follows {
                continue;
            }
            let wanted = asked.get(node.depth as usize);
            on_path[at as usize] =
                wanted.is_some_and(|wanted| self.is_entity_of_step(node.entity, wanted));
            if wanted.is_none() || on_path[at as usize] {
                known.insert((node.parent, node.entity), at);
            }
        }
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
        (0..stacks.len() as u32).filter(is_left_out).collect()
    }

    /// Parses a function of a path: its name, or its name, a newline and its file. Returns `None`
    /// if no function has this name.
    fn path_step(&self, text: &str) -> Option<PathStep> {
        // Equal texts have equal numbers in the table.
        let find = |text: &str| self.table.strings.find(text);
        let with_file = text
            .rsplit_once('\n')
            .and_then(|(name, file)| Some((find(name)?, Some(find(file)?))));
        with_file.or_else(|| Some((find(text)?, None)))
    }

    /// Whether an entity belongs to the function that a step of a path names.
    fn is_entity_of_step(&self, entity: u32, &(name, file): &PathStep) -> bool {
        let function = self.table.entity[entity as usize].function as usize;
        let is_file = |file| self.table.file_of(function) == file;
        self.table.function[function].name == name && file.is_none_or(is_file)
    }

    /// Builds a tree of these stacks. `whole` has, for each block, the sum that a share of 1 stands
    /// for.
    fn grow_tree(
        &self,
        stacks: &EntityStacks,
        whole: &[i64],
        most: Option<usize>,
    ) -> Result<CallTree, heapprof_totals::TotalsError> {
        let TreeOptions { reverse, least, .. } = self.tree_options;
        // Step 0 is the least share that was asked for. The next steps begin at `MIN_RAISED_SHARE`
        // or above.
        let share = |step: i32| match step {
            0 => least,
            step => {
                (least * SHARE_STEP_FACTOR).max(MIN_RAISED_SHARE) * SHARE_STEP_FACTOR.powi(step - 1)
            }
        };
        let needed = |step: i32| -> Vec<i64> {
            let part = |&whole: &i64| match share(step) {
                0.0 => 0,
                share => ((whole as f64 * share).ceil() as i64).max(1),
            };
            whole.iter().map(part).collect()
        };
        let build = |step: i32| {
            let shape = TreeShape {
                rank: self.ranks(),
                reverse,
                least: &needed(step),
            };
            call_tree::build(stacks, &shape)
        };
        let most = most.unwrap_or(usize::MAX);
        if stacks.entity.len() <= most {
            return build(0);
        }
        // Most nodes of a large tree are too small to be seen, and building them takes most of the
        // time. So the first tree leaves out nodes that are far too small.
        let mut step = 0;
        while share(step) * (most as f64) < NODES_TIMES_SHARE {
            step += 1;
        }
        let mut tree = build(step)?;
        let mut back = 1;
        while tree.node.len() <= most && step > 0 {
            step = (step - back).max(0);
            back *= 2;
            tree = build(step)?;
        }
        if tree.node.len() > most {
            while tree.count_heavier(&needed(step)) > most && share(step) < 1.0 {
                step += 1;
            }
            // Many nodes may have the same weight, and one step may take all of them out.
            match tree.count_heavier(&needed(step)) * 2 < most {
                true => tree.keep((most / 2).max(1).min(most), whole),
                false => tree.cut(&needed(step)),
            }
        }
        Ok(tree)
    }
}

/// Returns the signed sum of each value column over all stacks, and the sum of its absolute values.
fn sums(stacks: &EntityStacks) -> (Vec<i64>, Vec<i64>) {
    let (mut net, mut whole) = (vec![0; stacks.width], vec![0; stacks.width]);
    for values in stacks.value.chunks_exact(stacks.width.max(1)) {
        for ((net, whole), value) in net.iter_mut().zip(&mut whole).zip(values) {
            *net += value;
            *whole += value.abs();
        }
    }
    (net, whole)
}
