//! The call tree as a graph: each node is a path from the root, and so has at most one caller.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use heapprof_profile::Profile;

use super::NO_NODE;
use super::edge::{CallEdge, CallEdges};
use heapprof_totals::frames::FrameTable;
use heapprof_totals::totals::{EntitySums, pick};

/// Paths from the root. A caller's number is smaller than the numbers of its callees.
#[derive(Default)]
pub(super) struct CallPaths {
    /// For each path, the number of its last frame in the node table.
    pub(super) info: Vec<u32>,
    /// For each path, the number of the path without the last frame; [`NO_NODE`] for a root.
    pub(super) parent: Vec<u32>,
    /// For each path, whether its last frame is inlined in all samples.
    pub(super) inline: Vec<bool>,
    /// For each sample, the path that is its whole stack; [`NO_NODE`] if the stack is empty or the
    /// values are 0.
    pub(super) leaf: Vec<u32>,
}

impl CallPaths {
    pub(super) fn new(
        profile: &Profile,
        frames: &FrameTable,
        node_of: &[u32],
        columns: &[usize],
    ) -> Self {
        let mut paths = Self::default();
        let mut index: HashTable<u32> = HashTable::new();
        let hasher = RandomState::default();
        let mut picked = vec![0i64; columns.len()];
        for i in 0..profile.samples.len() {
            let mut path = NO_NODE;
            if pick(profile, i, columns, &mut picked) {
                for &location in profile.samples.stack(i).iter().rev() {
                    let range = frames.frames_of(location);
                    let outermost = range.end - 1;
                    for frame in range.rev() {
                        path = paths.step(&mut index, &hasher, path, node_of[frame as usize]);
                        paths.inline[path as usize] &= frame != outermost;
                    }
                }
            }
            paths.leaf.push(path);
        }
        paths
    }

    /// Returns the path that extends `parent` by the frame `info`. The path is added if it is new.
    fn step(
        &mut self,
        index: &mut HashTable<u32>,
        hasher: &RandomState,
        parent: u32,
        info: u32,
    ) -> u32 {
        let hash = |path: u32, of: &Self| {
            hasher.hash_one((of.parent[path as usize], of.info[path as usize]))
        };
        let same =
            |&path: &u32| (self.parent[path as usize], self.info[path as usize]) == (parent, info);
        let wanted = hasher.hash_one((parent, info));
        if let Some(&path) = index.find(wanted, same) {
            return path;
        }
        let path = self.info.len() as u32;
        self.info.push(info);
        self.parent.push(parent);
        self.inline.push(true);
        index.insert_unique(wanted, path, |&path| hash(path, self));
        path
    }

    /// Returns, for each path, the first path that extends it; [`NO_NODE`] if there is none.
    pub(super) fn first_callees(&self) -> Vec<u32> {
        let mut first = vec![NO_NODE; self.parent.len()];
        for (path, &parent) in self.parent.iter().enumerate().rev() {
            if parent != NO_NODE {
                first[parent as usize] = path as u32;
            }
        }
        first
    }

    /// Returns the calls from each path to the paths that extend it. A node has only one caller, so
    /// the weight of a call is the cum of its callee.
    pub(super) fn edges(&self, sums: &EntitySums) -> CallEdges {
        let nodes = 0..self.parent.len() as u32;
        let calls = nodes.filter(|&path| self.parent[path as usize] != NO_NODE);
        CallEdges {
            width: sums.width,
            edge: calls
                .map(|path| CallEdge {
                    caller: self.parent[path as usize],
                    callee: path,
                    residual: false,
                    inline: self.inline[path as usize],
                    at: path,
                    place: [0; 2],
                    last: 0,
                })
                .collect(),
            weight: sums.cum.clone(),
            // Trees are trimmed in place, so the order in a Go map is unknown.
            neighbours: vec![[u8::MAX; 2]; self.parent.len()],
        }
    }
}

/// Removes nodes from a tree and connects their callees to the nearest remaining caller. A callee
/// of a removed root becomes a root. In `edges`, each caller's number is smaller than the numbers
/// of its callees.
pub(super) fn remove(edges: &mut CallEdges, removed: &[bool]) {
    edges.edge.sort_unstable_by_key(|edge| edge.callee);
    // For each removed node with a caller, the call that the edges to its callees continue.
    let mut above: Vec<Option<CallEdge>> = vec![None; removed.len()];
    edges.edge.retain_mut(|edge| {
        let mut stays = true;
        if removed[edge.caller as usize] {
            match above[edge.caller as usize] {
                Some(up) => {
                    edge.caller = up.caller;
                    edge.residual = true;
                    edge.inline &= up.inline;
                }
                None => stays = false,
            }
        }
        if removed[edge.callee as usize] {
            above[edge.callee as usize] = stays.then_some(*edge);
            stays = false;
        }
        stays
    });
}
