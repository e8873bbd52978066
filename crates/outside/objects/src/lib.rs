//! Graphs of nodes that lead to each other: dominators, and the retained size of each node.
//!
//! This crate must not know what the nodes are.
#![forbid(unsafe_code)]

mod components;
mod dominators;
mod graph;
mod search;

pub use self::components::components;
pub use self::dominators::Dominators;
pub use self::graph::Graph;
pub use self::search::postorder;

/// Returns the retained size of each node, by its number: its own size, plus the sizes of all nodes
/// that can only be reached through it. The size is 0 for nodes that can't be reached from the
/// root.
#[must_use]
pub fn retained_sizes(graph: &Graph, root: u32, size: impl Fn(u32) -> u64) -> Vec<u64> {
    let dominators = Dominators::new(graph, root);
    let mut retained = vec![0u64; graph.len()];
    for &node in dominators.order.iter().rev() {
        let own = retained[node as usize].saturating_add(size(node));
        retained[node as usize] = own;
        if let Some(parent) = dominators.parent(node) {
            let parent = &mut retained[parent as usize];
            *parent = parent.saturating_add(own);
        }
    }
    retained
}
