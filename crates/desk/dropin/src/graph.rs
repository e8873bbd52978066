//! The weighted call graph of a profile as pprof draws it, without small nodes and calls.
//!
//! The code follows google/pprof's internal/graph and the trimming of its internal/report, so that
//! the output has the same bytes. The caller filters and aggregates the profile first. Frames that
//! the profile does not distinguish are one node.

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

/// Number that stands for "no node": for a hidden frame, or for the caller of a root.
pub(crate) const NO_NODE: u32 = u32::MAX;

/// Key of the text label that marks the samples which `-diff_base` subtracts.
const DIFF_BASE_LABEL: &str = "pprof::base";

/// Options for building a graph and for leaving out small nodes and edges.
pub struct GraphOptions<'a> {
    /// Indices of the sample types to sum. The first one decides which nodes are small and which
    /// come first.
    pub columns: Vec<usize>,
    /// Index of the sample type whose sums divide the other sums, if means are shown.
    pub mean_divisor: Option<usize>,
    /// Whether a node is a path from the root instead of a place in the program.
    pub call_tree: bool,
    /// Whether to leave out nodes with a negative flat, and nodes without a flat that have a
    /// negative cum.
    pub drop_negative: bool,
    /// Whether frames with the same name in different mapped files are different nodes.
    pub objects: bool,
    /// The prefixes to cut off file names.
    pub trim: PathTrimmer,
    /// Options that only pictures need.
    pub picture: Option<PictureOptions<'a>>,
    /// Whether nodes are sorted by cum instead of flat. Pictures ignore this and sort nodes by how
    /// informative they are.
    pub sort_by_cum: bool,
    /// Maximum number of nodes to show; 0 shows all.
    pub node_count: usize,
    /// Least cum of a shown node, as a share of the sum of flats. Smaller nodes are left out.
    pub node_fraction: f64,
    /// Least weight of a shown edge, as a share of the sum of flats. Lighter edges are left out.
    pub edge_fraction: f64,
    /// Which calls are counted. A picture needs [`CallSelection::Each`].
    pub calls: CallSelection,
    /// Whether sums beyond 64 bits wrap, as in pprof, instead of being an error. [`fits`] returns
    /// whether the sums of a column fit.
    pub wrapping: bool,
}

/// Selection of the calls that a graph counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSelection {
    /// No calls, because only nodes are needed.
    None,
    /// All calls. A call counts once for each sample that contains it. Calls of a node by itself do
    /// not count.
    Each,
    /// For each function in a sample, only the outermost call, so that the calls to a function add
    /// up to its cum. This is for graphs from which nothing is left out.
    Outermost,
}

/// Options for pictures. In a picture, nodes are sorted by how informative they are, redundant
/// calls are left out, and labels stand beside their nodes.
pub struct PictureOptions<'a> {
    /// Formats the value of a `bytes` label. Values that are formatted alike are one tag.
    pub size_name: &'a dyn Fn(i64) -> String,
}

/// The call graph of a profile. Nodes are numbers from 0. The report shows the nodes in
/// [`shown`](Self::shown). As in pprof, edges may also begin or end at nodes that are not shown.
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
    /// The number of nodes before `node_count` limited them.
    pub total_nodes: usize,
    /// The number of nodes that were left out because they are small.
    pub dropped_nodes: usize,
    /// The number of edges that were left out because they are small.
    pub dropped_edges: usize,
}

impl<'a> CallGraph<'a> {
    /// Builds the graph. Fails if a sum does not fit in 64 bits, unless [`GraphOptions::wrapping`]
    /// allows it.
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

    /// Returns the nodes of the report, in the report's order.
    pub fn shown(&self) -> &[u32] {
        &self.shown
    }

    /// Returns the number of nodes. Nodes are numbered from 0.
    pub fn nodes(&self) -> usize {
        self.info.len()
    }

    /// Returns the facts that a report shows about a node, such as its name, place and address.
    pub fn info(&self, node: u32) -> NodeInfo<'_> {
        self.table.info(self.profile, self.info[node as usize])
    }

    /// Returns the printable name of a node.
    pub fn name(&self, node: u32) -> &str {
        self.names.get(self.info[node as usize])
    }

    /// Returns the node's caller in a call tree; `None` for a root. No node may have been removed
    /// from the tree.
    pub fn parent(&self, node: u32) -> Option<u32> {
        let parent = *self.parent.as_ref()?.get(node as usize)?;
        (parent != NO_NODE).then_some(parent)
    }

    /// Returns the flat of a node: the sum, or mean, over the samples that end in the node.
    pub fn flat(&self, node: u32) -> i64 {
        self.value(&self.sums.flat, node)
    }

    /// Returns the cum of a node: the sum, or mean, over the samples that contain the node. Each
    /// sample counts once.
    pub fn cum(&self, node: u32) -> i64 {
        self.value(&self.sums.cum, node)
    }

    /// Returns the flats of a node in all columns, including the divisor.
    pub fn flats(&self, node: u32) -> &[i64] {
        &self.sums.flat[node as usize * self.sums.width..][..self.sums.width]
    }

    /// Returns the cums of a node in all columns, including the divisor.
    pub fn cums(&self, node: u32) -> &[i64] {
        &self.sums.cum[node as usize * self.sums.width..][..self.sums.width]
    }

    fn value(&self, of: &[i64], node: u32) -> i64 {
        let of = &of[node as usize * self.sums.width..][..self.sums.width];
        match self.divided {
            true => mean(of[0], of[self.sums.width - 1]),
            false => of[0],
        }
    }

    /// Returns the edges from shown nodes, in descending order of weight, then by the names of
    /// caller and callee.
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

    /// Returns the edges to a shown node, in descending order of weight, or unordered with
    /// [`CallSelection::Outermost`].
    pub fn callers(&self, node: u32) -> impl Iterator<Item = &CallEdge> {
        let edges = self.callers.edges(node).iter();
        edges.map(|&at| &self.edges.edge[at as usize])
    }

    /// Returns the edges from a shown node, in descending order of weight.
    pub fn callees(&self, node: u32) -> impl Iterator<Item = &CallEdge> {
        let edges = self.callees.edges(node).iter();
        edges.map(|&at| &self.edges.edge[at as usize])
    }

    /// Returns the weight of an edge: the sum over the samples with this call. It is a sum even if
    /// means are shown.
    pub fn weight(&self, edge: &CallEdge) -> i64 {
        self.edges.weight(edge)
    }

    /// Returns the shown value of an edge: the sum, or mean, over the samples with this call.
    pub fn weight_value(&self, edge: &CallEdge) -> i64 {
        let weights = self.weights(edge);
        match self.divided {
            true => mean(weights[0], weights[weights.len() - 1]),
            false => weights[0],
        }
    }

    /// Returns the weights of an edge in all columns, including the divisor.
    pub fn weights(&self, edge: &CallEdge) -> &[i64] {
        &self.edges.weight[edge.at as usize * self.edges.width..][..self.edges.width]
    }

    /// Returns the sums, in all columns, over the samples whose outermost frame is the node. The
    /// result is empty unless calls are counted by [`CallSelection::Outermost`].
    pub fn root_weights(&self, node: u32) -> &[i64] {
        let at = node as usize * self.sums.width;
        self.roots.get(at..at + self.sums.width).unwrap_or_default()
    }

    /// Returns the tags of a node, in no order; `None` if the node has no tags or the graph is not
    /// for a picture.
    pub fn tags(&self, node: u32) -> Option<&NodeTags> {
        self.tags.get(&node)
    }
}

/// Returns `value` divided by `divisor`, or `value` itself if `divisor` is 0.
pub fn mean(value: i64, divisor: i64) -> i64 {
    match divisor {
        0 => value,
        // The least number divided by -1 does not fit. The result is then the number itself.
        divisor => value.wrapping_div(divisor),
    }
}

impl NodeTag {
    /// Returns the flat of the tag: the sum, or mean, over the samples that end in the node.
    pub fn flat_value(&self) -> i64 {
        mean(self.flat.0, self.flat.1)
    }

    /// Returns the cum of the tag: the sum, or mean, over all samples of the node.
    pub fn cum_value(&self) -> i64 {
        mean(self.cum.0, self.cum.1)
    }
}

/// Returns the sum of the values. A sum beyond 64 bits wraps, as in pprof.
pub fn sum(values: impl Iterator<Item = i64>) -> i64 {
    values.fold(0, i64::wrapping_add)
}

/// Whether the sums of a column fit in 64 bits.
pub fn fits(profile: &Profile, column: usize) -> bool {
    whole_totals(profile, &[column]).is_ok()
}

/// Returns the total that pprof's percentages refer to: the sum of the absolute values in a column.
/// If some samples belong to the base of a difference, only these samples are summed. For means,
/// the sum is divided by the sum of the column `mean_divisor`. A sum beyond 64 bits wraps.
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
