//! Removes nodes from a call tree that has too many.

use super::{CallTree, NO_PARENT, is_heavy};

impl CallTree {
    /// Removes the nodes that are below the minimum weight `least` in every column. The tree must
    /// have been built with minimum weights of at most `least`.
    pub fn cut(&mut self, least: &[i64]) {
        let is_kept = |tree: &Self, at: usize| is_heavy(tree.weight_of(at), least);
        self.retain(is_kept);
    }

    /// Keeps the `most` heaviest nodes, and removes the others. Of equally heavy nodes, the first
    /// are kept. The weight of a node is its largest share of a column's sum in `whole`.
    pub fn keep(&mut self, most: usize, whole: &[i64]) {
        if self.node.len() <= most {
            return;
        }
        let share = |at: usize| {
            let parts = self.weight_of(at).iter().zip(whole);
            parts
                .map(|(&part, &whole)| part as f64 / whole.max(1) as f64)
                .fold(0.0, f64::max)
        };
        let mut order: Vec<(f64, usize)> = (0..self.node.len()).map(|at| (share(at), at)).collect();
        // A parent is at least as heavy as its child and comes before it, so it is kept, too.
        order.select_nth_unstable_by(most, |(a, at), (b, than)| b.total_cmp(a).then(at.cmp(than)));
        let mut is_kept = vec![false; self.node.len()];
        for &(_, at) in &order[..most] {
            is_kept[at] = true;
        }
        self.retain(|_, at| is_kept[at]);
    }

    /// Removes the nodes for which `is_kept` is false. If `is_kept` is true for a node, it must be
    /// true for its parent.
    fn retain(&mut self, is_kept: impl Fn(&Self, usize) -> bool) {
        let width = self.width;
        // The new number of each node. A node that stays has a parent that stays and comes before
        // it.
        let mut now = vec![NO_PARENT; self.node.len()];
        let mut kept = 0;
        for at in 0..self.node.len() {
            // Sums are moved only to places at or before `at`, so those of this node are still
            // unchanged.
            if !is_kept(self, at) {
                continue;
            }
            let sums = at * width..(at + 1) * width;
            let mut node = self.node[at];
            if node.parent != NO_PARENT {
                node.parent = now[node.parent as usize];
            }
            node.last_descendant = kept;
            now[at] = kept;
            let to = kept as usize;
            self.node[to] = node;
            for sums_of in [&mut self.own, &mut self.total, &mut self.weight] {
                if !sums_of.is_empty() {
                    sums_of.copy_within(sums.clone(), to * width);
                }
            }
            kept += 1;
        }
        let kept = kept as usize;
        self.node.truncate(kept);
        for sums_of in [&mut self.own, &mut self.total, &mut self.weight] {
            sums_of.truncate(kept * width);
        }
        self.find_descendants();
    }
}
