//! Calls between nodes: their weight, whether the callee was inlined, and whether hidden nodes lie
//! between caller and callee.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use heapprof_profile::Profile;

use super::NO_NODE;
use heapprof_totals::frames::FrameTable;
use heapprof_totals::totals::pick;

/// A call from one node to another.
#[derive(Clone, Copy, Debug)]
pub struct CallEdge {
    /// Number of the node that calls.
    pub caller: u32,
    /// Number of the node that is called.
    pub callee: u32,
    /// Whether hidden nodes lie between caller and callee in some sample.
    pub residual: bool,
    /// Whether the callee was inlined in all samples.
    pub inline: bool,
    /// Row of the edge's weights in the table of all weights.
    pub(super) at: u32,
    /// The callee's number of callers, and the caller's number of callees, at the time when this
    /// edge was added. Only numbers up to [`MAX_ORDERED_NEIGHBOURS`] matter.
    pub(super) place: [u8; 2],
    /// Number of the last sample that counted this edge. The first sample is 1.
    pub(super) last: u32,
}

/// Maximum number of neighbours that a Go map keeps in order.
pub(super) const MAX_ORDERED_NEIGHBOURS: u8 = 8;

/// Calls in the order in which samples first contain them, with `width` weights each.
#[derive(Default)]
pub(super) struct CallEdges {
    pub(super) width: usize,
    pub(super) edge: Vec<CallEdge>,
    pub(super) weight: Vec<i64>,
    /// For each node, its number of callers and of callees, including removed edges. The counts
    /// stop at 255, which is more than [`MAX_ORDERED_NEIGHBOURS`].
    pub(super) neighbours: Vec<[u8; 2]>,
}

impl CallEdges {
    /// Returns the weight of the edge in the first column.
    pub(super) fn weight(&self, edge: &CallEdge) -> i64 {
        self.weight[edge.at as usize * self.width]
    }

    /// Removes the calls that lead to `shown` nodes and are lighter than `least`. Returns the
    /// number of removed calls.
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

/// The edges of each node, as positions in a list of edges.
#[derive(Default)]
pub(super) struct NodeAdjacency {
    first: Vec<u32>,
    edge: Vec<u32>,
}

impl NodeAdjacency {
    /// Groups edges by node. `end` returns the node of an edge: its caller or its callee. The edges
    /// of a node keep their order.
    pub(super) fn new(edges: &[CallEdge], nodes: usize, end: impl Fn(&CallEdge) -> u32) -> Self {
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

    pub(super) fn edges(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.edge[self.first[node] as usize..self.first[node + 1] as usize]
    }

    pub(super) fn edges_mut(&mut self, node: u32) -> &mut [u32] {
        let node = node as usize;
        &mut self.edge[self.first[node] as usize..self.first[node + 1] as usize]
    }
}

/// Returns the outermost call to each function in each sample, and for each node the weight of the
/// stacks that begin with it. These calls and weights add up to a function's cum, even under
/// recursion. With recursion, [`calls`] would count a sample once for each caller of the function.
pub(super) fn outermost_calls(
    profile: &Profile,
    frames: &FrameTable,
    node_of: &[u32],
    function_of: &[u32],
    columns: &[usize],
) -> (CallEdges, Vec<i64>) {
    let nodes = function_of.len();
    let width = columns.len();
    let mut table = EdgeTable::new(nodes, width);
    let mut roots = vec![0i64; nodes * width];
    // For each function, the last sample that contained it. The first sample is 1.
    let mut seen = vec![0usize; nodes];
    let mut picked = vec![0i64; width];
    for i in 0..profile.samples.len() {
        if !pick(profile, i, columns, &mut picked) {
            continue;
        }
        let mut caller = NO_NODE;
        for &location in profile.samples.stack(i).iter().rev() {
            let range = frames.frames_of(location);
            let outermost = range.end - 1;
            for frame in range.rev() {
                let callee = node_of[frame as usize];
                let function = function_of[callee as usize] as usize;
                if seen[function] != i + 1 {
                    seen[function] = i + 1;
                    if caller == NO_NODE {
                        let sums = roots[callee as usize * width..].iter_mut();
                        sums.zip(&picked)
                            .for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
                    } else {
                        table.found.push(SampleCall {
                            caller,
                            callee,
                            residual: false,
                            inline: frame != outermost,
                        });
                    }
                }
                caller = callee;
            }
        }
        table.add(i, &picked);
    }
    (table.edges, roots)
}

/// Returns the calls between nodes in all samples. `node_of` holds the node of each frame, or
/// [`NO_NODE`] for a hidden frame.
pub(super) fn calls(
    profile: &Profile,
    frames: &FrameTable,
    node_of: &[u32],
    nodes: usize,
    columns: &[usize],
) -> CallEdges {
    let mut table = EdgeTable::new(nodes, columns.len());
    let mut picked = vec![0i64; columns.len()];
    for i in 0..profile.samples.len() {
        if !pick(profile, i, columns, &mut picked) {
            continue;
        }
        let mut caller = NO_NODE;
        let mut residual = false;
        for &location in profile.samples.stack(i).iter().rev() {
            let range = frames.frames_of(location);
            let outermost = range.end - 1;
            for frame in range.rev() {
                let callee = node_of[frame as usize];
                if callee == NO_NODE {
                    residual = true;
                    continue;
                }
                if caller != NO_NODE && caller != callee {
                    table.found.push(SampleCall {
                        caller,
                        callee,
                        residual,
                        inline: frame != outermost,
                    });
                }
                caller = callee;
                residual = false;
            }
        }
        table.add(i, &picked);
    }
    table.edges
}

/// A call found in a sample.
struct SampleCall {
    caller: u32,
    callee: u32,
    residual: bool,
    inline: bool,
}

struct EdgeTable {
    edges: CallEdges,
    /// The calls in the current sample.
    found: Vec<SampleCall>,
    at: Vec<u32>,
    /// For each callee, the caller and the edge of its latest call. Many calls repeat; repeated
    /// calls then need no hashing.
    last: Vec<(u32, u32)>,
    /// Hash table of the edges: caller, callee and number of each edge. Caller and callee are
    /// stored here because reading them from the edges would touch scattered memory.
    index: HashTable<(u32, u32, u32)>,
    hasher: RandomState,
}

impl EdgeTable {
    fn new(nodes: usize, width: usize) -> Self {
        Self {
            edges: CallEdges {
                width,
                neighbours: vec![[0; 2]; nodes],
                ..CallEdges::default()
            },
            found: Vec::new(),
            at: Vec::new(),
            last: vec![(NO_NODE, NO_NODE); nodes],
            index: HashTable::new(),
            hasher: RandomState::default(),
        }
    }

    #[inline]
    fn find_or_insert(&mut self, caller: u32, callee: u32) -> u32 {
        let (last, at) = self.last[callee as usize];
        if last == caller {
            return at;
        }
        let (edges, hasher) = (&mut self.edges, &self.hasher);
        let entry = self.index.entry(
            hasher.hash_one((caller, callee)),
            |known| (known.0, known.1) == (caller, callee),
            |known| hasher.hash_one((known.0, known.1)),
        );
        let at = match entry {
            hashbrown::hash_table::Entry::Occupied(known) => known.get().2,
            hashbrown::hash_table::Entry::Vacant(new) => {
                let at = edges.edge.len() as u32;
                new.insert((caller, callee, at));
                let mut place = |node: u32, side: usize| {
                    let count = &mut edges.neighbours[node as usize][side];
                    *count = count.saturating_add(1);
                    *count - 1
                };
                let place = [place(callee, 0), place(caller, 1)];
                edges.edge.push(CallEdge {
                    caller,
                    callee,
                    residual: false,
                    inline: true,
                    at,
                    place,
                    last: 0,
                });
                edges.weight.resize(edges.weight.len() + edges.width, 0);
                at
            }
        };
        self.last[callee as usize] = (caller, at);
        at
    }

    /// Adds the values of a sample to the edges of its calls, once to each edge. So no sum exceeds
    /// the total, which was checked to fit in 64 bits (unless sums may wrap). Each step runs over
    /// all calls, so that the processor can load many memory locations in parallel.
    fn add(&mut self, sample: usize, values: &[i64]) {
        let found = std::mem::take(&mut self.found);
        let mut at = std::mem::take(&mut self.at);
        at.extend(
            found
                .iter()
                .map(|call| self.find_or_insert(call.caller, call.callee)),
        );
        // Two samples get the same number only if they are 4 billion samples away from each other.
        let sample = (sample as u32).wrapping_add(1).max(1);
        let mut calls = found.iter();
        at.retain(|&at| {
            let edge = &mut self.edges.edge[at as usize];
            if let Some(call) = calls.next()
                && edge.last != sample
            {
                edge.last = sample;
                edge.residual |= call.residual;
                edge.inline &= call.inline;
                return true;
            }
            false
        });
        let width = self.edges.width;
        for at in at.drain(..) {
            let sums = self.edges.weight[at as usize * width..].iter_mut();
            sums.zip(values)
                .for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
        }
        (self.found, self.at) = (found, at);
        self.found.clear();
    }
}
