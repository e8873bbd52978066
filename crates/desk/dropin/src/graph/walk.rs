//! The nodes in each sample's stack.

use heapprof_profile::Profile;

use super::NO_NODE;
use super::tree::CallPaths;
use heapprof_totals::frames::FrameTable;
use heapprof_totals::totals::{EntitySums, pick};

pub(super) enum NodeWalk {
    /// The node of each frame; [`NO_NODE`] for a hidden frame.
    Frames(Vec<u32>),
    /// Each node is a path from the root.
    Paths(CallPaths),
}

impl NodeWalk {
    /// Writes the nodes of sample `i` to `stack`, leaf first.
    fn nodes(&self, profile: &Profile, frames: &FrameTable, i: usize, stack: &mut Vec<u32>) {
        stack.clear();
        match self {
            NodeWalk::Frames(node_of) => {
                for &location in profile.samples.stack(i) {
                    stack.extend(
                        &node_of[frames.frames_of(location).start as usize
                            ..frames.frames_of(location).end as usize],
                    );
                }
            }
            NodeWalk::Paths(paths) => {
                let mut path = paths.leaf[i];
                while path != NO_NODE {
                    stack.push(path);
                    path = paths.parent[path as usize];
                }
            }
        }
    }

    /// Calls `each(sample, values, leaf, nodes)` for every sample that has a value other than 0.
    pub(super) fn samples(
        &self,
        profile: &Profile,
        frames: &FrameTable,
        columns: &[usize],
        mut each: impl FnMut(usize, &[i64], Option<u32>, &[u32]),
    ) {
        let mut picked = vec![0i64; columns.len()];
        let mut stack = Vec::new();
        for i in 0..profile.samples.len() {
            if !pick(profile, i, columns, &mut picked) {
                continue;
            }
            self.nodes(profile, frames, i, &mut stack);
            let leaf = stack.first().copied().filter(|&leaf| leaf != NO_NODE);
            each(i, &picked, leaf, &stack);
        }
    }

    /// Returns the flat and cum of all nodes. A sample whose leaf is hidden counts in no flat.
    pub(super) fn sums(
        &self,
        profile: &Profile,
        frames: &FrameTable,
        columns: &[usize],
        nodes: usize,
    ) -> EntitySums {
        let mut sums = EntitySums::new(nodes, columns.len());
        self.samples(profile, frames, columns, |_, values, leaf, stack| {
            let shown = stack.iter().copied().filter(|&node| node != NO_NODE);
            sums.add(values, leaf, shown);
        });
        sums
    }
}
