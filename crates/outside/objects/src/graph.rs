//! A graph that stores the successors of each node in sequence.

/// A graph. Its nodes are numbered from 0, in the order in which [`end_node`](Self::end_node) was
/// called for them.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The index in `to` of each node's first successor. The last entry is the number of all
    /// successors.
    first: Vec<u32>,
    /// The successors of all nodes, one node after the other.
    to: Vec<u32>,
}

impl Default for Graph {
    fn default() -> Self {
        Self {
            first: vec![0],
            to: Vec::new(),
        }
    }
}

impl Graph {
    /// Returns the number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() - 1
    }

    /// Whether the graph has no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds successors to the node that is being added.
    pub fn lead_to(&mut self, nodes: impl IntoIterator<Item = u32>) {
        self.to.extend(nodes);
    }

    /// Finishes the node that is being added. Duplicate successors are removed.
    pub fn end_node(&mut self) {
        let from = self.first.last().map_or(0, |&from| from as usize);
        self.to[from..].sort_unstable();
        let mut kept = from;
        for i in from..self.to.len() {
            if kept == from || self.to[i] != self.to[kept - 1] {
                self.to[kept] = self.to[i];
                kept += 1;
            }
        }
        self.to.truncate(kept);
        self.first.push(kept as u32);
    }

    /// Returns the successors of a node.
    #[must_use]
    pub fn successors(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.to[self.first[node] as usize..self.first[node + 1] as usize]
    }

    /// Returns a graph with all edges reversed.
    #[must_use]
    pub(crate) fn reversed(&self) -> Self {
        let count = self.len();
        let mut first = vec![0u32; count + 1];
        for &to in &self.to {
            first[to as usize + 1] += 1;
        }
        for i in 0..count {
            first[i + 1] += first[i];
        }
        let mut next = first.clone();
        let mut to = vec![0; self.to.len()];
        for node in 0..count as u32 {
            for &successor in self.successors(node) {
                let place = &mut next[successor as usize];
                to[*place as usize] = node;
                *place += 1;
            }
        }
        Self { first, to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_successor_counts_once() {
        let mut graph = Graph::default();
        graph.lead_to([2, 1, 2, 2]);
        graph.end_node();
        graph.lead_to([]);
        graph.end_node();
        graph.lead_to([0, 0]);
        graph.end_node();
        assert_eq!((graph.len(), graph.is_empty()), (3, false));
        let all: Vec<&[u32]> = (0..3).map(|node| graph.successors(node)).collect();
        assert_eq!(all, [&[1, 2][..], &[], &[0]]);
        let turned = graph.reversed();
        let all: Vec<&[u32]> = (0..3).map(|node| turned.successors(node)).collect();
        assert_eq!(all, [&[2][..], &[0], &[0]]);
    }
}
