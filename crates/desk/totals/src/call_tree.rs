//! The call tree. Each node is a path from the root. Nodes are in pre-order, so a subtree is a
//! range of node numbers.
//!
//! The tree is built by splitting the samples frame by frame from the root (or from the leaf, if
//! reversed). The heaviest child comes first. Nodes that are too light are left out. Several
//! profiles share one tree.

mod cut;
mod pieces;
mod stacks;

use self::pieces::SubtreePieces;
pub use self::stacks::EntityStacks;
use crate::error::TotalsError;

/// A node of a [`CallTree`], without its sums.
#[derive(Clone, Copy, Debug)]
pub struct CallTreeNode {
    /// The entity that the node stands for.
    pub entity: u32,
    /// The number of the parent; `u32::MAX` for a root.
    pub parent: u32,
    /// The number of ancestors of the node.
    pub depth: u32,
    /// The number of the last node in this node's subtree.
    pub last_descendant: u32,
    /// Whether no ancestor stands for the same entity.
    pub outermost: bool,
}

/// The parent number of a root.
pub const NO_PARENT: u32 = u32::MAX;

/// A call tree: nodes with `width` sums for each.
#[derive(Debug, Default)]
pub struct CallTree {
    /// The nodes in pre-order.
    pub node: Vec<CallTreeNode>,
    /// The number of sums per node.
    pub width: usize,
    /// The sums over the stacks that end in the node itself. The sum of a node in a column is at
    /// `node * width + column`.
    pub own: Vec<i64>,
    /// The sums over the stacks that pass through the node. The sum of a node in a column is at
    /// `node * width + column`.
    pub total: Vec<i64>,
    /// The sums of the absolute values behind `total`. They decide which nodes are cut. Empty if no
    /// value is negative, because the weights then equal `total`.
    pub weight: Vec<i64>,
}

/// Whether one of a node's weights reaches the least weight of its column.
fn is_heavy(weight: &[i64], least: &[i64]) -> bool {
    weight.iter().zip(least).any(|(w, least)| w >= least)
}

impl CallTree {
    /// Returns the weights of all nodes.
    fn weights(&self) -> &[i64] {
        match self.weight.is_empty() {
            true => &self.total,
            false => &self.weight,
        }
    }

    /// Returns the weights of one node.
    fn weight_of(&self, at: usize) -> &[i64] {
        &self.weights()[at * self.width..(at + 1) * self.width]
    }

    /// Returns the tree with a chain of new nodes above its roots. The chain has a node for each
    /// entity of `way`, in order from the top. `net` holds the sums of all roots, and `whole` the
    /// sums of their absolute values.
    ///
    /// # Errors
    /// Fails if the tree gets more nodes than it can number.
    pub fn put_below(self, way: &[u32], net: &[i64], whole: &[i64]) -> Result<Self, TotalsError> {
        let mut tree = Self {
            width: self.width,
            ..Self::default()
        };
        let is_signed = net != whole || !self.weight.is_empty();
        for (depth, &entity) in (0..).zip(way) {
            tree.push(CallTreeNode {
                entity,
                parent: if depth == 0 { NO_PARENT } else { depth - 1 },
                depth,
                last_descendant: 0,
                outermost: !way[..depth as usize].contains(&entity),
            })?;
            tree.own.extend(net.iter().map(|_| 0));
            tree.total.extend(net);
            tree.weight.extend(whole.iter().filter(|_| is_signed));
        }
        let above = way.len() as u32;
        for node in &self.node {
            let parent = match node.parent {
                NO_PARENT if above == 0 => NO_PARENT,
                NO_PARENT => above - 1,
                parent => parent + above,
            };
            tree.push(CallTreeNode {
                parent,
                depth: node.depth + above,
                outermost: node.outermost && !way.contains(&node.entity),
                ..*node
            })?;
        }
        tree.own.extend(&self.own);
        tree.total.extend(&self.total);
        tree.add_weight(is_signed, &self, 0..self.total.len());
        tree.find_descendants();
        Ok(tree)
    }

    /// Sets the last descendant of each node. Before the call, each node is its own last
    /// descendant.
    fn find_descendants(&mut self) {
        for at in (1..self.node.len()).rev() {
            let node = self.node[at];
            if node.parent != NO_PARENT {
                let parent = &mut self.node[node.parent as usize];
                parent.last_descendant = parent.last_descendant.max(node.last_descendant);
            }
        }
    }

    /// Returns the number of nodes that the tree would have if it were built with the minimum
    /// weights `least`. The tree must have been built with minimum weights of at most `least`.
    pub fn count_heavier(&self, least: &[i64]) -> usize {
        // A node's weight is at most that of its parent, so a node that is heavy enough has a
        // parent that is.
        let nodes = self.weights().chunks_exact(self.width.max(1));
        nodes.filter(|weight| is_heavy(weight, least)).count()
    }
}

/// The options of [`build`]: the order of children, the direction and the minimum weights.
pub struct TreeShape<'a> {
    /// The rank of each entity in the order of names. Children of equal weight are in this order.
    pub rank: &'a [u32],
    /// Whether the tree starts from the leaves of the stacks instead of from their roots.
    pub reverse: bool,
    /// The minimum weight in each column. A node needs it in at least one column.
    pub least: &'a [i64],
}

/// Builds a tree of all nodes that reach a minimum weight of `shape`.
pub fn build(stacks: &EntityStacks, shape: &TreeShape<'_>) -> Result<CallTree, TotalsError> {
    let mut pieces = match stacks.len() >= pieces::MIN_PARALLEL_STACKS {
        true => SubtreePieces::enabled(),
        false => SubtreePieces::disabled(),
    };
    let mut builder = CallTreeBuilder::new(stacks, shape, BuilderScratch::for_shape(shape));
    let (mut tree, _) = builder.grow(&[], &mut pieces)?;
    let order = builder.order;
    pieces.grow(stacks, &order, shape)?.put_into(&mut tree)?;
    tree.find_descendants();
    Ok(tree)
}

impl CallTree {
    /// Appends a node. The caller appends its sums. Fails if the tree has too many nodes.
    fn push(&mut self, node: CallTreeNode) -> Result<u32, TotalsError> {
        let id = u32::try_from(self.node.len())
            .ok()
            .filter(|&id| id != NO_PARENT);
        let id = id
            .ok_or_else(|| TotalsError::BeyondRange("the number of call tree nodes".to_string()))?;
        self.node.push(CallTreeNode {
            last_descendant: id,
            ..node
        });
        Ok(id)
    }
}

/// A node that is still to be built. The stacks `order[start..end]` pass through it.
struct NodeTask {
    entity: u32,
    parent: u32,
    depth: u32,
    start: usize,
    end: usize,
}

/// Marker in place of an index, for an entity that has no [`FrameRun`] yet.
const NO_RUN: u32 = u32::MAX;
/// Run number of a stack that ends before the depth at which the range is split.
const STACK_ENDS: u32 = u32::MAX;

/// The stacks in a range of `order` that have equal frames at a depth.
struct FrameRun {
    entity: u32,
    /// The number of stacks in the run.
    count: usize,
    /// The position in `order` to which the next stack of the run is moved.
    next: usize,
}

/// Buffers with a number for each entity. Trees that are built one after the other share them.
struct BuilderScratch {
    /// The index of each entity's [`FrameRun`] while a range is split.
    run_of_entity: Vec<u32>,
    /// The number of times that each entity is on the path to the node that is being built.
    on_path: Vec<u32>,
}

impl BuilderScratch {
    fn for_shape(shape: &TreeShape<'_>) -> Self {
        Self {
            run_of_entity: vec![NO_RUN; shape.rank.len()],
            on_path: vec![0; shape.rank.len()],
        }
    }
}

struct CallTreeBuilder<'a> {
    stacks: &'a EntityStacks,
    shape: &'a TreeShape<'a>,
    order: Vec<u32>,
    /// The start of each stack in the list of all stacks' entities, then the end of the last stack.
    first: Vec<usize>,
    /// A copy of the range of `order` that is being split.
    before: Vec<u32>,
    /// The run of each stack in the range.
    run_of: Vec<u32>,
    scratch: BuilderScratch,
    found: Vec<FrameRun>,
    /// The children of one node, each as: largest weight, rank, task, position in `run_sums`.
    runs: Vec<(i64, u32, NodeTask, usize)>,
    /// The totals and weights of each run.
    run_sums: Vec<i64>,
    tasks: Vec<NodeTask>,
    /// The totals and weights of each task.
    task_sums: Vec<i64>,
}

impl<'a> CallTreeBuilder<'a> {
    fn new(stacks: &'a EntityStacks, shape: &'a TreeShape<'a>, scratch: BuilderScratch) -> Self {
        Self {
            stacks,
            shape,
            order: (0..stacks.len() as u32).collect(),
            first: std::iter::once(0)
                .chain(stacks.end.iter().copied())
                .collect(),
            before: Vec::new(),
            run_of: Vec::new(),
            scratch,
            found: Vec::new(),
            runs: Vec::new(),
            run_sums: Vec::new(),
            tasks: Vec::new(),
            task_sums: Vec::new(),
        }
    }

    /// Builds the tree below the path `above`, except for the subtrees that `pieces` defers. Also
    /// returns the sums over the stacks that end where `above` ends.
    fn grow(
        &mut self,
        above: &[u32],
        pieces: &mut SubtreePieces,
    ) -> Result<(CallTree, Vec<i64>), TotalsError> {
        let width = self.stacks.width;
        let mut tree = CallTree {
            width,
            ..CallTree::default()
        };
        let is_signed = self.stacks.value.iter().any(|&value| value < 0);
        let mut path = above.to_vec();
        for &entity in above {
            self.scratch.on_path[entity as usize] += 1;
        }
        let ended = self.split(0, self.order.len(), 0, NO_PARENT);
        let mut of_path = vec![0; width];
        self.add_own(0, ended, &mut of_path);
        while let Some(task) = self.tasks.pop() {
            for left in path.drain(above.len() + task.depth as usize..) {
                self.scratch.on_path[left as usize] -= 1;
            }
            let entity = task.entity;
            let id = tree.push(CallTreeNode {
                entity,
                parent: task.parent,
                depth: task.depth,
                last_descendant: 0,
                outermost: self.scratch.on_path[entity as usize] == 0,
            })?;
            self.scratch.on_path[entity as usize] += 1;
            path.push(entity);
            let sums = self.task_sums.len() - 2 * width;
            tree.total.extend(&self.task_sums[sums..sums + width]);
            if is_signed {
                tree.weight.extend(&self.task_sums[sums + width..]);
            }
            self.task_sums.truncate(sums);

            let own = tree.own.len();
            tree.own.resize(own + width, 0);
            if pieces.take(id, &task, &path) {
                continue;
            }
            let ended = self.split(task.start, task.end, task.depth + 1, id);
            self.add_own(task.start, ended, &mut tree.own[own..]);
        }
        for left in path {
            self.scratch.on_path[left as usize] -= 1;
        }
        Ok((tree, of_path))
    }

    /// Adds the values of the stacks `order[start..end]` to `own`.
    fn add_own(&self, start: usize, end: usize, own: &mut [i64]) {
        for &sample in &self.order[start..end] {
            for (sum, value) in own.iter_mut().zip(self.stacks.values(sample as usize)) {
                *sum += value;
            }
        }
    }

    /// Splits the stacks of `order[start..end]` by their frame at `depth`. Stacks without such a
    /// frame come first. Returns the position of the first stack with such a frame. Each run of
    /// equal frames becomes a task if it is heavy enough. The heaviest task is added last, because
    /// tasks are taken from the end.
    fn split(&mut self, start: usize, end: usize, depth: u32, parent: u32) -> usize {
        let ended = start + self.find_runs(start, end, depth as usize);
        self.put_in_order(start, end, ended);
        let width = self.stacks.width;
        self.runs.clear();
        for (run, sums) in self.found.iter().zip((0..).step_by(2 * width.max(1))) {
            let weight = &self.run_sums[sums + width..sums + 2 * width];
            if !is_heavy(weight, self.shape.least) {
                continue;
            }
            let task = NodeTask {
                entity: run.entity,
                parent,
                depth,
                start: run.next - run.count,
                end: run.next,
            };
            let heaviest = weight.iter().copied().max().unwrap_or(0);
            let rank = self.shape.rank[run.entity as usize];
            self.runs.push((heaviest, rank, task, sums));
        }
        // The lightest comes first, because tasks are taken from the end.
        self.runs
            .sort_unstable_by_key(|(weight, rank, ..)| (*weight, std::cmp::Reverse(*rank)));
        for (_, _, task, sums) in self.runs.drain(..) {
            self.task_sums
                .extend_from_slice(&self.run_sums[sums..sums + 2 * width]);
            self.tasks.push(task);
        }
        ended
    }

    /// Finds the runs of a range with their sums. Returns the number of stacks without a frame at
    /// `depth`.
    ///
    /// The stacks of a range lie far from each other in memory, so most of the time goes into
    /// waiting for memory. Each loop does one thing, and has no branch that depends on memory that
    /// is not loaded yet. So the processor waits for many stacks at once.
    fn find_runs(&mut self, start: usize, end: usize, depth: usize) -> usize {
        let Self { stacks, shape, .. } = self;
        let width = stacks.width;
        let range = &self.order[start..end];
        self.run_of.clear();
        self.run_of.extend(range.iter().map(|&sample| {
            let (first, last) = (self.first[sample as usize], self.first[sample as usize + 1]);
            let at = match shape.reverse {
                true => first + depth,
                false => last.wrapping_sub(1 + depth),
            };
            let is_ended = last - first == depth;
            let entity = stacks.entity.get(if is_ended { 0 } else { at });
            match is_ended {
                true => STACK_ENDS,
                false => entity.copied().unwrap_or(STACK_ENDS),
            }
        }));
        self.found.clear();
        let mut ended = 0;
        for key in &mut self.run_of {
            if *key == STACK_ENDS {
                ended += 1;
                continue;
            }
            let entity = *key;
            let run = &mut self.scratch.run_of_entity[entity as usize];
            if *run == NO_RUN {
                *run = self.found.len() as u32;
                let (count, next) = (0, 0);
                self.found.push(FrameRun {
                    entity,
                    count,
                    next,
                });
            }
            *key = *run;
            self.found[*run as usize].count += 1;
        }
        for run in &self.found {
            self.scratch.run_of_entity[run.entity as usize] = NO_RUN;
        }
        // The stacks that end are added up behind the runs. Nothing reads that sum.
        self.run_sums.clear();
        self.run_sums.resize((self.found.len() + 1) * 2 * width, 0);
        let behind = self.found.len() as u32;
        for (&sample, &run) in range.iter().zip(&self.run_of) {
            let sums = run.min(behind) as usize * 2 * width;
            let (total, weight) = self.run_sums[sums..sums + 2 * width].split_at_mut(width);
            let values = stacks.values(sample as usize);
            for ((total, weight), value) in total.iter_mut().zip(weight).zip(values) {
                *total += value;
                *weight += value.abs();
            }
        }
        ended
    }

    /// Sorts a range of `order`: first the stacks that end, then one run after the other. Stacks
    /// within a run keep their order, so that they are read in the order of their addresses in
    /// memory.
    fn put_in_order(&mut self, start: usize, end: usize, ended: usize) {
        let mut next = ended;
        for run in &mut self.found {
            run.next = next;
            next += run.count;
        }
        // All stacks are in one run, so there is nothing to move.
        if let [one] = &mut self.found[..]
            && ended == start
        {
            one.next = end;
            return;
        }
        self.before.clear();
        self.before.extend_from_slice(&self.order[start..end]);
        let mut ending = start;
        for (&sample, &run) in self.before.iter().zip(&self.run_of) {
            let to = match run {
                STACK_ENDS => &mut ending,
                run => &mut self.found[run as usize].next,
            };
            self.order[*to] = sample;
            *to += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a fixed list of stacks of a few entities, with values in two columns.
    fn stacks(signed: bool) -> EntityStacks {
        stacks_of(400, signed)
    }

    fn stacks_of(count: usize, signed: bool) -> EntityStacks {
        let mut stacks = EntityStacks {
            width: 2,
            ..EntityStacks::default()
        };
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..count {
            for _ in 0..1 + next(6) {
                stacks.entity.push(next(5) as u32);
            }
            stacks.end.push(stacks.entity.len());
            for _ in 0..2 {
                let value = next(1000) as i64;
                stacks.value.push(if signed && next(3) == 0 {
                    -value
                } else {
                    value
                });
            }
        }
        stacks
    }

    fn built(stacks: &EntityStacks, least: &[i64]) -> CallTree {
        let shape = TreeShape {
            rank: &[0, 1, 2, 3, 4],
            reverse: false,
            least,
        };
        build(stacks, &shape).unwrap()
    }

    #[test]
    fn a_tree_that_is_cut_is_that_which_asks_for_as_much() {
        for signed in [false, true] {
            let stacks = stacks(signed);
            for least in [[1, 1], [500, 900], [5_000, 2_000], [i64::MAX, i64::MAX]] {
                let wanted = built(&stacks, &least);
                let mut tree = built(&stacks, &[0, 0]);
                assert_eq!(tree.count_heavier(&least), wanted.node.len());
                tree.cut(&least);
                assert_eq!(format!("{:?}", tree.node), format!("{:?}", wanted.node));
                assert_eq!(tree.own, wanted.own);
                assert_eq!(tree.total, wanted.total);
                assert_eq!(tree.weight, wanted.weight);
            }
        }
    }

    /// Checks that a tree is the same whether threads build its subtrees from copies or it is built
    /// in place.
    #[test]
    fn pieces_make_the_same_tree() {
        for signed in [false, true] {
            let stacks = stacks_of(pieces::MIN_PARALLEL_STACKS + 1, signed);
            for (reverse, least) in [(false, [0, 0]), (true, [0, 0]), (false, [90_000, 50_000])] {
                let shape = TreeShape {
                    rank: &[0, 1, 2, 3, 4],
                    reverse,
                    least: &least,
                };
                let tree = build(&stacks, &shape).unwrap();
                let mut builder =
                    CallTreeBuilder::new(&stacks, &shape, BuilderScratch::for_shape(&shape));
                let (mut wanted, _) = builder.grow(&[], &mut SubtreePieces::disabled()).unwrap();
                wanted.find_descendants();
                assert!(wanted.node.len() > 100);
                assert_eq!(format!("{:?}", tree.node), format!("{:?}", wanted.node));
                assert_eq!(tree.own, wanted.own);
                assert_eq!(tree.total, wanted.total);
                assert_eq!(tree.weight, wanted.weight);
            }
        }
    }

    #[test]
    fn a_tree_of_some_stacks_has_their_values() {
        let stacks = stacks(false);
        let which: Vec<u32> = (0..stacks.len() as u32).step_by(3).collect();
        let sum = |column: usize| -> i64 {
            which
                .iter()
                .map(|&stack| stacks.values(stack as usize)[column])
                .sum()
        };
        let sums = [sum(0), sum(1)];
        let shape = TreeShape {
            rank: &[0, 1, 2, 3, 4],
            reverse: true,
            least: &[0, 0],
        };
        let tree = build(&stacks.below(&which, 0), &shape).unwrap();
        for (column, wanted) in sums.into_iter().enumerate() {
            let roots = tree.node.iter().zip(tree.total.chunks_exact(2));
            let roots = roots.filter(|(node, _)| node.parent == NO_PARENT);
            assert_eq!(roots.map(|(_, total)| total[column]).sum::<i64>(), wanted);
        }
    }
}
