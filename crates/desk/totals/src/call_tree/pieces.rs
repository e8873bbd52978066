//! The small subtrees of a large call tree, each built from a copy of its stacks.
//!
//! The stacks of a subtree lie far from each other in memory, and are read once for each frame. So
//! they are first copied next to each other. Several threads build subtrees.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    BuilderScratch, CallTree, CallTreeBuilder, CallTreeNode, EntityStacks, NO_PARENT, NodeTask,
    TreeShape,
};
use crate::error::TotalsError;

/// Minimum number of stacks for which a tree is built in pieces.
pub(super) const MIN_PARALLEL_STACKS: usize = 1 << 16;
/// Maximum number of stacks in a piece. A subtree of more stacks is split further.
const MAX_PIECE_STACKS: usize = 1 << 14;
/// Minimum number of stacks in a piece. A subtree of fewer stacks is not worth a copy.
const MIN_PIECE_STACKS: usize = 1 << 5;
/// Maximum number of threads that build pieces.
const MAX_THREADS: usize = 8;

/// A deferred subtree, which is still to be built.
struct SubtreePiece {
    /// The number of the piece's root in the tree.
    node: u32,
    /// Start of the piece's stacks in `order`. The next field is their end.
    start: usize,
    end: usize,
    /// The entities from the root of the tree to the root of the piece.
    path: Vec<u32>,
}

/// The deferred subtrees, which threads build later.
pub(super) struct SubtreePieces {
    is_enabled: bool,
    pieces: Vec<SubtreePiece>,
}

/// A subtree without its root, and the sums over the stacks that end in the root.
type GrownSubtree = (CallTree, Vec<i64>);

impl SubtreePieces {
    /// Makes an empty list that defers small subtrees.
    pub(super) fn enabled() -> Self {
        Self {
            is_enabled: true,
            pieces: Vec::new(),
        }
    }

    /// Makes an empty list that defers no subtree.
    pub(super) fn disabled() -> Self {
        Self {
            is_enabled: false,
            pieces: Vec::new(),
        }
    }

    /// Defers the subtree of a node if it has the right size. Returns whether it was deferred.
    pub(super) fn take(&mut self, node: u32, task: &NodeTask, path: &[u32]) -> bool {
        let is_taken = self.is_enabled
            && (MIN_PIECE_STACKS..=MAX_PIECE_STACKS).contains(&(task.end - task.start));
        if is_taken {
            self.pieces.push(SubtreePiece {
                node,
                start: task.start,
                end: task.end,
                path: path.to_vec(),
            });
        }
        is_taken
    }

    /// Builds the deferred subtrees in several threads.
    pub(super) fn grow(
        self,
        stacks: &EntityStacks,
        order: &[u32],
        shape: &TreeShape<'_>,
    ) -> Result<GrownSubtrees, TotalsError> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut scratch = BuilderScratch::for_shape(shape);
            let mut grown = Vec::new();
            while let Some(piece) = self.pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                let near = piece.copy(stacks, order, shape.reverse);
                let mut builder = CallTreeBuilder::new(&near, shape, scratch);
                grown.push((
                    piece.node,
                    builder.grow(&piece.path, &mut SubtreePieces::disabled())?,
                ));
                scratch = builder.scratch;
            }
            Ok(grown)
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let more = cores
            .min(MAX_THREADS)
            .min(self.pieces.len())
            .saturating_sub(1);
        let all: Vec<Result<Vec<(u32, GrownSubtree)>, TotalsError>> = std::thread::scope(|scope| {
            // If the system gives no further thread, this thread builds all pieces.
            let others: Vec<_> = (0..more)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let mut all = vec![work()];
            for other in others {
                match other.join() {
                    Ok(grown) => all.push(grown),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        });
        let all: Result<Vec<Vec<(u32, GrownSubtree)>>, TotalsError> = all.into_iter().collect();
        let mut grown: Vec<(u32, GrownSubtree)> = all?.into_iter().flatten().collect();
        grown.sort_by_key(|(node, _)| *node);
        Ok(GrownSubtrees(grown))
    }
}

impl SubtreePiece {
    /// Copies the piece's stacks without the frames from the tree's root to the piece's root.
    fn copy(&self, stacks: &EntityStacks, order: &[u32], reverse: bool) -> EntityStacks {
        let mut near = EntityStacks {
            width: stacks.width,
            ..EntityStacks::default()
        };
        let above = self.path.len();
        for &stack in &order[self.start..self.end] {
            let entities = stacks.get(stack as usize);
            near.entity.extend_from_slice(match reverse {
                true => &entities[above..],
                false => &entities[..entities.len() - above],
            });
            near.end.push(near.entity.len());
            near.value.extend_from_slice(stacks.values(stack as usize));
        }
        near
    }
}

/// The subtrees that were built, in the order of their roots.
pub(super) struct GrownSubtrees(Vec<(u32, GrownSubtree)>);

impl GrownSubtrees {
    /// Inserts each subtree into `tree` after the subtree's root.
    pub(super) fn put_into(self, tree: &mut CallTree) -> Result<(), TotalsError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let old = std::mem::take(tree);
        let width = old.width;
        tree.width = width;
        let is_signed = !old.weight.is_empty()
            || self
                .0
                .iter()
                .any(|(_, (piece, _))| !piece.weight.is_empty());
        let mut pieces = self.0.into_iter().peekable();
        let mut now = vec![NO_PARENT; old.node.len()];
        for (at, node) in old.node.iter().enumerate() {
            let parent = match node.parent {
                NO_PARENT => NO_PARENT,
                parent => now[parent as usize],
            };
            let id = tree.push(CallTreeNode { parent, ..*node })?;
            now[at] = id;
            let sums = at * width..(at + 1) * width;
            tree.total.extend(&old.total[sums.clone()]);
            tree.add_weight(is_signed, &old, sums.clone());
            match pieces.next_if(|(root, _)| *root as usize == at) {
                None => tree.own.extend(&old.own[sums]),
                Some((_, (piece, own))) => {
                    tree.own.extend(own);
                    let first = tree.node.len() as u32;
                    for node in &piece.node {
                        tree.push(CallTreeNode {
                            parent: match node.parent {
                                NO_PARENT => id,
                                parent => first + parent,
                            },
                            depth: tree.node[id as usize].depth + 1 + node.depth,
                            ..*node
                        })?;
                    }
                    tree.total.extend(&piece.total);
                    tree.own.extend(&piece.own);
                    tree.add_weight(is_signed, &piece, 0..piece.total.len());
                }
            }
        }
        Ok(())
    }
}

impl CallTree {
    /// Appends weights of the tree `of` to the weights of this tree; does nothing if `is_signed` is
    /// false. `sums` is the range of the weights in `of`. If `of` has no negative value, its totals
    /// are its weights.
    pub(super) fn add_weight(
        &mut self,
        is_signed: bool,
        of: &CallTree,
        sums: std::ops::Range<usize>,
    ) {
        if is_signed {
            self.weight.extend(&of.weights()[sums]);
        }
    }
}
