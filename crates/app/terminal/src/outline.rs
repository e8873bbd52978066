//! Finds the visible nodes of the tree: the nodes whose parents are all unfolded.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::answer::ViewNode;

/// A visible node of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutlineLine {
    /// Position of the node in the tree.
    pub(super) node: usize,
    /// A hash of the names from the root to the node.
    pub(super) path: u64,
    pub(super) has_more: bool,
    pub(super) is_unfolded: bool,
}

/// Returns the visible nodes, whose parents are all unfolded, in the order of the tree.
pub(super) fn visible_lines(nodes: &[ViewNode], unfolded: &HashSet<u64>) -> Vec<OutlineLine> {
    let mut lines = Vec::new();
    // The paths of the nodes from the root to the last one, and whether their children are shown.
    let mut paths: Vec<(u64, bool)> = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        paths.truncate(node.depth);
        let (above, is_shown) = paths.last().copied().unwrap_or((0, true));
        let mut hasher = DefaultHasher::new();
        (above, &node.name).hash(&mut hasher);
        let path = hasher.finish();
        let is_unfolded = unfolded.contains(&path);
        paths.push((path, is_shown && is_unfolded));
        if is_shown {
            let has_more = nodes
                .get(at + 1)
                .is_some_and(|next| next.depth > node.depth);
            lines.push(OutlineLine {
                node: at,
                path,
                has_more,
                is_unfolded: is_unfolded && has_more,
            });
        }
    }
    lines
}

/// Repeatedly unfolds the largest visible node that is not unfolded. Stops when that node has at
/// most half of the value of the node that was unfolded before it.
pub(super) fn unfold_largest(nodes: &[ViewNode], unfolded: &mut HashSet<u64>) {
    let mut most = i64::MAX;
    loop {
        let lines = visible_lines(nodes, unfolded);
        let open = |line: &&OutlineLine| line.has_more && !line.is_unfolded;
        let largest = lines
            .iter()
            .filter(open)
            .max_by_key(|line| nodes[line.node].total);
        let Some(line) = largest.filter(|line| {
            let total = nodes[line.node].total;
            most == i64::MAX || total.saturating_mul(2) > most
        }) else {
            return;
        };
        most = nodes[line.node].total;
        unfolded.insert(line.path);
        if lines.len() > 30 {
            return;
        }
    }
}
