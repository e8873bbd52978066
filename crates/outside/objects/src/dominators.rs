//! Finds the dominators of a graph's nodes. A node dominates another node if all paths from the
//! root to the other node lead through it.
//!
//! The algorithm is by Lengauer and Tarjan ("A fast algorithm for finding dominators in a
//! flowgraph", 1979), with path compression. It takes almost linear time, and no recursion.

use crate::graph::Graph;

/// Value that stands for "no node".
const NO_NODE: u32 = u32::MAX;

/// The dominators of a graph, and an order in which each dominator comes before the nodes that it
/// dominates.
#[derive(Clone, Debug)]
pub struct Dominators {
    /// The nearest dominator of each node; `NO_NODE` for the root and for nodes that are not
    /// reached.
    parent: Vec<u32>,
    /// The nodes that are reached, the root first.
    pub order: Vec<u32>,
}

impl Dominators {
    /// Finds the dominators of the nodes to which `root` leads.
    #[must_use]
    pub fn new(graph: &Graph, root: u32) -> Self {
        let count = graph.len();
        let before = graph.reversed();
        let mut work = SemidominatorForest {
            number: vec![NO_NODE; count],
            ancestor: vec![NO_NODE; count],
            best: (0..count as u32).collect(),
            semi: vec![NO_NODE; count],
        };
        let (order, parent) = work.visit(graph, root);
        let mut found = vec![NO_NODE; count];
        // The first of the nodes that have this node as their semidominator. `next` has the node
        // after each.
        let (mut head, mut next) = (vec![NO_NODE; count], vec![NO_NODE; count]);
        for &node in order.iter().skip(1).rev() {
            let at = node as usize;
            for &from in before.successors(node) {
                if work.number[from as usize] == NO_NODE {
                    continue;
                }
                let best = work.best_of(from) as usize;
                work.semi[at] = work.semi[at].min(work.semi[best]);
            }
            let semi = order[work.semi[at] as usize] as usize;
            next[at] = head[semi];
            head[semi] = node;
            let above = parent[at];
            work.ancestor[at] = above;
            let mut one = std::mem::replace(&mut head[above as usize], NO_NODE);
            while one != NO_NODE {
                let best = work.best_of(one);
                let is_lower = work.semi[best as usize] < work.semi[one as usize];
                found[one as usize] = if is_lower { best } else { above };
                one = std::mem::replace(&mut next[one as usize], NO_NODE);
            }
        }
        for &node in order.iter().skip(1) {
            let at = node as usize;
            if found[at] != order[work.semi[at] as usize] {
                found[at] = found[found[at] as usize];
            }
        }
        Self {
            parent: found,
            order,
        }
    }

    /// Returns the nearest dominator of a node; `None` for the root and for nodes that are not
    /// reached.
    #[must_use]
    pub fn parent(&self, node: u32) -> Option<u32> {
        let parent = self.parent[node as usize];
        (parent != NO_NODE).then_some(parent)
    }
}

/// The algorithm's data about each node, by the node's number.
struct SemidominatorForest {
    /// The number of each node, in the order of the depth-first visit.
    number: Vec<u32>,
    /// The node above each node in the forest; `NO_NODE` for roots.
    ancestor: Vec<u32>,
    /// The node with the lowest semidominator on the path from each node to the root of its tree.
    best: Vec<u32>,
    /// The number of each node's semidominator.
    semi: Vec<u32>,
}

impl SemidominatorForest {
    /// Visits all nodes to which `root` leads, depth first. Returns them in order, and the parent
    /// of each node in the visit.
    fn visit(&mut self, graph: &Graph, root: u32) -> (Vec<u32>, Vec<u32>) {
        let mut parent = vec![NO_NODE; self.number.len()];
        let mut order = Vec::new();
        let mut stack = vec![(root, root)];
        while let Some((node, from)) = stack.pop() {
            let at = node as usize;
            if self.number[at] != NO_NODE {
                continue;
            }
            let number = order.len() as u32;
            self.number[at] = number;
            self.semi[at] = number;
            parent[at] = from;
            order.push(node);
            for &successor in graph.successors(node).iter().rev() {
                if self.number[successor as usize] == NO_NODE {
                    stack.push((successor, node));
                }
            }
        }
        (order, parent)
    }

    /// Returns the node with the lowest semidominator between a node and the root of its tree.
    /// Shortens the path to the root.
    fn best_of(&mut self, node: u32) -> u32 {
        let mut way = Vec::new();
        let mut at = node;
        while self.ancestor[at as usize] != NO_NODE
            && self.ancestor[self.ancestor[at as usize] as usize] != NO_NODE
        {
            way.push(at);
            at = self.ancestor[at as usize];
        }
        // From the root down, each node takes over the best node above it if that one is better.
        for &one in way.iter().rev() {
            let (one, above) = (one as usize, self.ancestor[one as usize] as usize);
            let (own, its) = (self.best[one] as usize, self.best[above] as usize);
            if self.semi[its] < self.semi[own] {
                self.best[one] = its as u32;
            }
            self.ancestor[one] = self.ancestor[above];
        }
        self.best[node as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(count: usize, edges: &[(u32, u32)]) -> Graph {
        let mut sorted = edges.to_vec();
        sorted.sort_unstable();
        let mut edges = sorted.into_iter().peekable();
        let mut graph = Graph::default();
        for node in 0..count as u32 {
            while let Some((_, to)) = edges.next_if(|(from, _)| *from == node) {
                graph.lead_to([to]);
            }
            graph.end_node();
        }
        graph
    }

    /// Returns, for each node, whether it can be reached without passing through the node
    /// `without`.
    fn reached(graph: &Graph, without: Option<u32>) -> Vec<bool> {
        let mut is_reached = vec![false; graph.len()];
        let mut stack: Vec<u32> = [0]
            .into_iter()
            .filter(|root| Some(*root) != without)
            .collect();
        while let Some(node) = stack.pop() {
            if std::mem::replace(&mut is_reached[node as usize], true) {
                continue;
            }
            stack.extend(
                graph
                    .successors(node)
                    .iter()
                    .filter(|to| Some(**to) != without),
            );
        }
        is_reached
    }

    /// Tests in random graphs that a node dominates exactly the nodes that can't be reached without
    /// it.
    #[test]
    fn dominators_are_those_of_brute_force() {
        let mut state = 7u64;
        let mut draw = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % most
        };
        for _ in 0..1000 {
            let count = 1 + draw(24) as usize;
            let edges = draw(3 * count as u64 + 1);
            let edges: Vec<(u32, u32)> = (0..edges)
                .map(|_| (draw(count as u64) as u32, draw(count as u64) as u32))
                .collect();
            let graph = graph(count, &edges);
            let found = Dominators::new(&graph, 0);
            let all = reached(&graph, None);
            let dominates: Vec<Vec<bool>> = (0..count as u32)
                .map(|node| {
                    let without = reached(&graph, Some(node));
                    (0..count).map(|i| all[i] && !without[i]).collect()
                })
                .collect();
            for node in 0..count {
                // All dominators, up the tree.
                let mut up = vec![false; count];
                let mut at = all[node].then_some(node as u32);
                while let Some(one) = at {
                    up[one as usize] = true;
                    at = found.parent(one);
                }
                let expected: Vec<bool> = (0..count).map(|by| dominates[by][node]).collect();
                assert_eq!(up, expected, "{node} of {edges:?}");
            }
        }
    }

    #[test]
    fn a_long_chain_takes_no_stack() {
        const COUNT: u32 = 200_000;
        let edges: Vec<(u32, u32)> = (1..COUNT).map(|to| (to - 1, to)).collect();
        let found = Dominators::new(&graph(COUNT as usize, &edges), 0);
        assert_eq!(found.parent(COUNT - 1), Some(COUNT - 2));
    }
}
