//! Calls between nodes: their weight, each once a sample, and whether they were inlined or skip nodes that are not shown.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use heapprof_profile::Profile;

use super::NOBODY;
use crate::frames::FrameTable;
use crate::totals::pick;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node that calls.
    pub caller: u32,
    /// The node that is called.
    pub callee: u32,
    /// Whether some sample has nodes between them that are not shown.
    pub residual: bool,
    /// Whether the callee was inlined in all samples.
    pub inline: bool,
    /// Position of its weights.
    pub(super) at: u32,
    /// How many callers the callee had when this one was found, and how many callees the caller; up to [`MANY`].
    pub(super) place: [u8; 2],
}

/// More neighbours than a map of Go keeps in order.
pub(super) const MANY: u8 = 8;

/// Calls with `width` weights each, in the order in which the samples first had them.
#[derive(Default)]
pub(super) struct Edges {
    pub(super) width: usize,
    pub(super) edge: Vec<Edge>,
    pub(super) weight: Vec<i64>,
    /// How many callers and how many callees a node had before any edge was removed, up to more than [`MANY`].
    pub(super) neighbours: Vec<[u8; 2]>,
}

impl Edges {
    /// What the edge weighs in the first column.
    pub(super) fn weight(&self, edge: &Edge) -> i64 {
        self.weight[edge.at as usize * self.width]
    }

    /// Removes the calls lighter than `least` of which `shown` nodes are the callees; how many they were.
    pub(super) fn trim(&mut self, shown: &[bool], least: i64) -> usize {
        let before = self.edge.len();
        let (weight, width) = (&self.weight, self.width);
        self.edge.retain(|edge| {
            let weight = weight[edge.at as usize * width];
            weight.wrapping_abs() >= least || !shown[edge.callee as usize]
        });
        before - self.edge.len()
    }
}

/// Each node's edges, as ranges of positions in a list of edges.
#[derive(Default)]
pub(super) struct Adjacency {
    first: Vec<u32>,
    edge: Vec<u32>,
}

impl Adjacency {
    /// By the node that `end` takes of an edge; a node's edges keep their order.
    pub(super) fn new(edges: &[Edge], nodes: usize, end: impl Fn(&Edge) -> u32) -> Self {
        let mut first = vec![0u32; nodes + 1];
        for edge in edges {
            first[end(edge) as usize + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut edge = vec![0; edges.len()];
        for (at, e) in edges.iter().enumerate() {
            let next = &mut next[end(e) as usize];
            edge[*next as usize] = at as u32;
            *next += 1;
        }
        Self { first, edge }
    }

    pub(super) fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.edge[self.first[node] as usize..self.first[node + 1] as usize]
    }

    pub(super) fn of_mut(&mut self, node: u32) -> &mut [u32] {
        let node = node as usize;
        &mut self.edge[self.first[node] as usize..self.first[node + 1] as usize]
    }
}

/// Each sample's outermost call to each of its functions, and for each node what the stacks weigh that begin with
/// it. So what comes to a function adds up to its cum, also under recursion, where [`calls`] would count a sample
/// for each of its callers.
pub(super) fn outermost_calls(
    profile: &Profile,
    frames: &FrameTable,
    node_of: &[u32],
    function_of: &[u32],
    columns: &[usize],
) -> (Edges, Vec<i64>) {
    let nodes = function_of.len();
    let width = columns.len();
    let mut table = EdgeTable::new(nodes, width);
    let mut roots = vec![0i64; nodes * width];
    // The sample that last had a function, from 1.
    let mut seen = vec![0usize; nodes];
    let mut picked = vec![0i64; width];
    for i in 0..profile.samples.len() {
        if !pick(profile, i, columns, &mut picked) {
            continue;
        }
        let mut caller = NOBODY;
        for &location in profile.samples.stack(i).iter().rev() {
            let range = frames.of(location);
            let outermost = range.end - 1;
            for frame in range.rev() {
                let callee = node_of[frame as usize];
                let function = function_of[callee as usize] as usize;
                if seen[function] != i + 1 {
                    seen[function] = i + 1;
                    if caller == NOBODY {
                        let sums = roots[callee as usize * width..].iter_mut();
                        sums.zip(&picked)
                            .for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
                    } else {
                        let at = table.find_or_insert(caller, callee);
                        table.add(at, i, &picked, false, frame != outermost);
                    }
                }
                caller = callee;
            }
        }
    }
    (table.edges, roots)
}

/// The calls in all samples between the nodes of their frames; a frame may be [`NOBODY`]'s.
pub(super) fn calls(
    profile: &Profile,
    frames: &FrameTable,
    node_of: &[u32],
    nodes: usize,
    columns: &[usize],
) -> Edges {
    let mut table = EdgeTable::new(nodes, columns.len());
    let mut picked = vec![0i64; columns.len()];
    for i in 0..profile.samples.len() {
        if !pick(profile, i, columns, &mut picked) {
            continue;
        }
        let mut caller = NOBODY;
        let mut residual = false;
        for &location in profile.samples.stack(i).iter().rev() {
            let range = frames.of(location);
            let outermost = range.end - 1;
            for frame in range.rev() {
                let callee = node_of[frame as usize];
                if callee == NOBODY {
                    residual = true;
                    continue;
                }
                if caller != NOBODY && caller != callee {
                    let at = table.find_or_insert(caller, callee);
                    table.add(at, i, &picked, residual, frame != outermost);
                }
                caller = callee;
                residual = false;
            }
        }
    }
    table.edges
}

struct EdgeTable {
    edges: Edges,
    /// The sample that last counted an edge.
    seen: Vec<usize>,
    /// The edge that a callee was last found by: most calls repeat, so most need no hashing.
    last: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
}

impl EdgeTable {
    fn new(nodes: usize, width: usize) -> Self {
        Self {
            edges: Edges {
                width,
                neighbours: vec![[0; 2]; nodes],
                ..Edges::default()
            },
            seen: Vec::new(),
            last: vec![NOBODY; nodes],
            index: HashTable::new(),
            hasher: RandomState::default(),
        }
    }

    #[inline]
    fn find_or_insert(&mut self, caller: u32, callee: u32) -> usize {
        let last = self.last[callee as usize];
        if last != NOBODY && self.edges.edge[last as usize].caller == caller {
            return last as usize;
        }
        let (edges, hasher) = (&mut self.edges, &self.hasher);
        let hash = hasher.hash_one((caller, callee));
        let entry = self.index.entry(
            hash,
            |&at| {
                let edge = &edges.edge[at as usize];
                (edge.caller, edge.callee) == (caller, callee)
            },
            |&at| {
                let edge = &edges.edge[at as usize];
                hasher.hash_one((edge.caller, edge.callee))
            },
        );
        let at = match entry {
            hashbrown::hash_table::Entry::Occupied(known) => *known.get(),
            hashbrown::hash_table::Entry::Vacant(new) => {
                let at = edges.edge.len() as u32;
                new.insert(at);
                let mut place = |node: u32, side: usize| {
                    let count = &mut edges.neighbours[node as usize][side];
                    *count = count.saturating_add(1);
                    *count - 1
                };
                let place = [place(callee, 0), place(caller, 1)];
                edges.edge.push(Edge {
                    caller,
                    callee,
                    residual: false,
                    inline: true,
                    at,
                    place,
                });
                edges.weight.resize(edges.weight.len() + edges.width, 0);
                self.seen.push(usize::MAX);
                at
            }
        };
        self.last[callee as usize] = at;
        at as usize
    }

    /// Adds a sample to an edge unless it has it already. Bounded by the total, as once a sample, or wrapping.
    #[inline]
    fn add(&mut self, at: usize, sample: usize, values: &[i64], residual: bool, inline: bool) {
        if self.seen[at] == sample {
            return;
        }
        self.seen[at] = sample;
        let width = self.edges.width;
        for (sum, value) in self.edges.weight[at * width..].iter_mut().zip(values) {
            *sum = sum.wrapping_add(*value);
        }
        let edge = &mut self.edges.edge[at];
        edge.residual |= residual;
        edge.inline &= inline;
    }
}
