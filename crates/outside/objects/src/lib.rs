//! Graphs of what points where: dominators, and the sizes that would go with a node.
//!
//! This crate must never know what the nodes are.
#![forbid(unsafe_code)]

mod components;
mod dominators;
mod graph;
mod search;

pub use self::components::components;
pub use self::dominators::Dominators;
pub use self::graph::Graph;
pub use self::search::postorder;

/// Returns for each node, by its number, the size that would go with it: its own size and that of
/// all nodes to which only it leads. It is 0 for nodes to which the root does not lead.
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
