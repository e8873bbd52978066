//! The weighted call graph of a profile as pprof draws it: nodes and the calls between them,
//! without what is small.
//!
//! It follows google/pprof's internal/graph and the trimming of its internal/report, so that the
//! output is the same to the byte. The profile arrives filtered and aggregated. Nodes are told
//! apart by what it still says about its frames.

mod draft;
mod edge;
mod go_sort;
mod node;
mod order;
mod path;
mod redundant;
mod tags;
mod tree;
mod walk;

use foldhash::HashMap;
use heapprof_profile::{LabelSetIndex, Profile};

use self::draft::GraphDraft;
use self::edge::{CallEdges, NodeAdjacency};
use self::node::{NodeNames, NodeTable};
use heapprof_totals::TotalsError;
use heapprof_totals::totals::{EntitySums, whole_totals};

pub use self::{
    edge::CallEdge,
    go_sort::sort_as_go,
    node::NodeInfo,
    order::truncate_as_go,
    path::{PathTrimmer, base, clean},
    tags::{NodeTag, NodeTags},
};

/// No node: a frame that is not shown, or the caller of a root.
pub(crate) const NO_NODE: u32 = u32::MAX;

/// The text label of samples that `-diff_base` subtracts.
const DIFF_BASE_LABEL: &str = "pprof::base";

/// What a graph is made of and how much of it stays.
pub struct GraphOptions<'a> {
    /// The sample types that are summed. The first one decides what is small and what comes first.
    pub columns: Vec<usize>,
    /// The sample type whose sums divide those of the others, if the values shown are means.
    pub mean_divisor: Option<usize>,
    /// Whether a node is a way from the root instead of a place.
    pub call_tree: bool,
    /// Leave out nodes with a negative flat, and nodes that have no flat and a negative cum.
    pub drop_negative: bool,
    /// Tell nodes with a name apart by the mapped file, too.
    pub objects: bool,
    /// What is cut off file names.
    pub trim: PathTrimmer,
    /// What is done only for pictures.
    pub picture: Option<PictureOptions<'a>>,
    /// Sort nodes by cum instead of flat. A picture has an order of its own.
    pub sort_by_cum: bool,
    /// The most nodes to show; 0 shows all.
    pub node_count: usize,
    /// Nodes with a cum below this share of the sum of flats are left out.
    pub node_fraction: f64,
    /// Edges with a weight below this share of the sum of flats are left out.
    pub edge_fraction: f64,
    /// Which calls are counted. A picture needs those of [`CallSelection::Each`].
    pub calls: CallSelection,
    /// Let sums beyond 64 bits wrap, as in pprof, instead of being an error. [`fits`] tells whether
    /// they would.
    pub wrapping: bool,
}

/// Which calls a graph has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSelection {
    /// No calls: only nodes are wanted.
    None,
    /// Each call once for a sample, except calls of a node by itself.
    Each,
    /// Only the outermost call to each function in a sample, so that the calls to a function add up
    /// to its cum. It is for graphs in which nothing is trimmed.
    Outermost,
}

/// What is done for pictures. Nodes are sorted by how much they tell, redundant calls are left out,
/// and labels stand beside their nodes.
pub struct PictureOptions<'a> {
    /// How the value of a `bytes` label is shown. Values that look the same are one tag.
    pub size_name: &'a dyn Fn(i64) -> String,
}

/// The graph. Its nodes are numbers. Those in [`shown`](Self::shown) are in the report. Others may
/// still be at the end of an edge, as in pprof.
pub struct CallGraph<'a> {
    profile: &'a Profile,
    table: NodeTable,
    names: NodeNames,
    info: Vec<u32>,
    parent: Option<Vec<u32>>,
    sums: EntitySums,
    divided: bool,
    shown: Vec<u32>,
    edges: CallEdges,
    roots: Vec<i64>,
    callers: NodeAdjacency,
    callees: NodeAdjacency,
    tags: HashMap<u32, NodeTags>,
    /// How many nodes there were before `node_count` limited them.
    pub total_nodes: usize,
    /// How many nodes were left out because they are small.
    pub dropped_nodes: usize,
    /// How many edges were left out because they are small.
    pub dropped_edges: usize,
}

impl<'a> CallGraph<'a> {
    /// Makes the graph. It is an error if 64 bits do not hold the sums, unless they are to wrap.
    pub fn new(profile: &'a Profile, options: &GraphOptions<'_>) -> Result<Self, TotalsError> {
        let mut draft = GraphDraft::new(profile, options)?;
        let flats = |draft: &GraphDraft<'_, '_>| sum(draft.shown.iter().map(|&n| draft.flat(n)));
        let total = flats(&draft) as f64;
        let cutoff = |fraction: f64| truncate_as_go(total * fraction).wrapping_abs();
        let (node_cutoff, edge_cutoff) =
            (cutoff(options.node_fraction), cutoff(options.edge_fraction));

        let mut dropped_nodes = 0;
        if node_cutoff > 0 {
            let heavy = |&n: &u32| draft.cum(n).wrapping_abs() >= node_cutoff;
            let kept: Vec<u32> = draft.shown.iter().copied().filter(heavy).collect();
            dropped_nodes = draft.shown.len() - kept.len();
            if dropped_nodes > 0 {
                draft.keep(kept);
            }
        }
        let of_nodes = draft.shown.len();

        draft.sort();
        if options.node_count > 0 {
            draft.trim_edges(edge_cutoff);
            let most = draft.count_fitting_nodes(options.node_count, node_cutoff)?;
            if most < draft.shown.len() {
                draft.keep(draft.shown[..most].to_vec());
                draft.sort();
            }
        }
        let dropped_edges = draft.trim_edges(edge_cutoff);
        draft.finish(node_cutoff, [of_nodes, dropped_nodes, dropped_edges])
    }

    /// The nodes of the report, in its order.
    pub fn shown(&self) -> &[u32] {
        &self.shown
    }

    /// The number of nodes: one more than the greatest number of a node.
    pub fn nodes(&self) -> usize {
        self.info.len()
    }

    /// What a node shows.
    pub fn info(&self, node: u32) -> NodeInfo<'_> {
        self.table.info(self.profile, self.info[node as usize])
    }

    /// The printable name of a node.
    pub fn name(&self, node: u32) -> &str {
        self.names.get(self.info[node as usize])
    }

    /// The node's caller in a call tree from which nothing was removed.
    pub fn parent(&self, node: u32) -> Option<u32> {
        let parent = *self.parent.as_ref()?.get(node as usize)?;
        (parent != NO_NODE).then_some(parent)
    }

    /// The sum over the samples that end in the node, or their mean.
    pub fn flat(&self, node: u32) -> i64 {
        self.value(&self.sums.flat, node)
    }

    /// The sum over the samples that hold the node, each counted once, or their mean.
    pub fn cum(&self, node: u32) -> i64 {
        self.value(&self.sums.cum, node)
    }

    /// The flats in all columns, including the divisor.
    pub fn flats(&self, node: u32) -> &[i64] {
        &self.sums.flat[node as usize * self.sums.width..][..self.sums.width]
    }

    fn value(&self, of: &[i64], node: u32) -> i64 {
        let of = &of[node as usize * self.sums.width..][..self.sums.width];
        match self.divided {
            true => mean(of[0], of[self.sums.width - 1]),
            false => of[0],
        }
    }

    /// The edges from shown nodes: the heaviest first, then by the names of their ends.
    pub fn edges(&self) -> impl Iterator<Item = &CallEdge> {
        let from = self.shown.iter().flat_map(|&node| {
            let mut list = self.callees.edges(node).to_vec();
            list.sort_unstable();
            list
        });
        let mut list: Vec<u32> = from.collect();
        order::sort_list(&mut list, &self.edges, &self.names, &self.info);
        list.into_iter().map(|at| &self.edges.edge[at as usize])
    }

    /// The edges to a shown node, the heaviest first. With [`CallSelection::Outermost`] they are in
    /// no order.
    pub fn callers(&self, node: u32) -> impl Iterator<Item = &CallEdge> {
        let edges = self.callers.edges(node).iter();
        edges.map(|&at| &self.edges.edge[at as usize])
    }

    /// The edges from a shown node, the heaviest first.
    pub fn callees(&self, node: u32) -> impl Iterator<Item = &CallEdge> {
        let edges = self.callees.edges(node).iter();
        edges.map(|&at| &self.edges.edge[at as usize])
    }

    /// The sum over the samples with this call. It is never divided.
    pub fn weight(&self, edge: &CallEdge) -> i64 {
        self.edges.weight(edge)
    }

    /// The sum over the samples with this call, or their mean.
    pub fn weight_value(&self, edge: &CallEdge) -> i64 {
        let weights = self.weights(edge);
        match self.divided {
            true => mean(weights[0], weights[weights.len() - 1]),
            false => weights[0],
        }
    }

    /// The weights in all columns, including the divisor.
    pub fn weights(&self, edge: &CallEdge) -> &[i64] {
        &self.edges.weight[edge.at as usize * self.edges.width..][..self.edges.width]
    }

    /// The sums, in all columns, over the samples whose stack begins with the node. They exist only
    /// with [`CallSelection::Outermost`].
    pub fn root_weights(&self, node: u32) -> &[i64] {
        let at = node as usize * self.sums.width;
        self.roots.get(at..at + self.sums.width).unwrap_or_default()
    }

    /// The tags of a node, in no order. `None` if the node has no tags or the graph is not for a
    /// picture.
    pub fn tags(&self, node: u32) -> Option<&NodeTags> {
        self.tags.get(&node)
    }
}

/// A sum divided by `divisor`, or the sum itself if `divisor` is 0.
pub fn mean(value: i64, divisor: i64) -> i64 {
    match divisor {
        0 => value,
        // The least number has no quotient by -1. It is left as it is.
        divisor => value.wrapping_div(divisor),
    }
}

impl NodeTag {
    /// The sum over the samples that end in the node, or their mean.
    pub fn flat_value(&self) -> i64 {
        mean(self.flat.0, self.flat.1)
    }

    /// The sum over the samples of the node, or their mean.
    pub fn cum_value(&self) -> i64 {
        mean(self.cum.0, self.cum.1)
    }
}

/// A sum that wraps, as in pprof.
pub fn sum(values: impl Iterator<Item = i64>) -> i64 {
    values.fold(0, i64::wrapping_add)
}

/// Whether 64 bits hold the sums of a column.
pub fn fits(profile: &Profile, column: usize) -> bool {
    whole_totals(profile, &[column]).is_ok()
}

/// What pprof's percentages are of: the sum of a column regardless of sign. If there are samples of
/// the base of a difference, the sum is over these only. For means it is divided by the sum of
/// another column. It wraps.
pub fn total(profile: &Profile, column: usize, mean_divisor: Option<usize>) -> i64 {
    let sets = &profile.label_sets;
    let of_base: Vec<bool> = (0..sets.len() as u32)
        .map(|set| {
            let mut labels = sets.get(LabelSetIndex(set)).iter();
            labels.any(|l| profile.text(l.key) == DIFF_BASE_LABEL && profile.text(l.str) == "true")
        })
        .collect();
    let (mut base, mut base_divisor) = (0i64, 0i64);
    for i in 0..profile.samples.len() {
        if of_base[profile.samples.label_set(i).index()] {
            let values = profile.samples.values(i);
            base = base.wrapping_add(values[column].wrapping_abs());
            base_divisor = base_divisor.wrapping_add(mean_divisor.map_or(0, |d| values[d]));
        }
    }
    if base > 0 {
        return mean(base, base_divisor);
    }
    let of =
        |column: usize| (0..profile.samples.len()).map(move |i| profile.samples.values(i)[column]);
    let divisor = mean_divisor.map_or(0, |d| sum(of(d)));
    mean(sum(of(column).map(i64::wrapping_abs)), divisor)
}
