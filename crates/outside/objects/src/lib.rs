//! Graphs of what points where: dominators, and what would go if a node went.
//!
//! It must never know what the nodes are.
#![forbid(unsafe_code)]

mod components;
mod dominators;
mod graph;
mod search;

pub use self::components::components;
pub use self::dominators::Dominators;
pub use self::graph::Graph;
pub use self::search::postorder;

/// What would go if a node went, by its number: its own size and that of all nodes to which only
/// it leads. 0 for nodes to which the root does not lead.
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
