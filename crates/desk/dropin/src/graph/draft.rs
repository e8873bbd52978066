//! A graph under construction: sums are computed once, then nodes and edges are removed step by
//! step.
//!
//! pprof builds its graph anew each time it removes nodes. This changes the calls between the
//! remaining nodes, but not their flat and cum. So this code counts only the calls anew, and only
//! when they are needed.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::Profile;

use super::edge::{CallEdge, CallEdges, NodeAdjacency, calls, outermost_calls};
use super::node::{NodeNames, NodeTable};
use super::tags::{NodeTags, tags};
use super::tree::{self, CallPaths};
use super::walk::NodeWalk;
use super::{CallGraph, CallSelection, GraphOptions, NO_NODE, order, redundant};
use heapprof_totals::TotalsError;
use heapprof_totals::frames::FrameTable;
use heapprof_totals::totals::{EntitySums, whole_totals};

/// Index of the callers in arrays with one entry for callers and one for callees.
const CALLER_END: usize = 0;
const CALLEE_END: usize = 1;

/// Maximum number of tags that a picture shows beside a node.
const MAX_TAGS: usize = 4;

pub(super) struct GraphDraft<'a, 'o> {
    profile: &'a Profile,
    options: &'o GraphOptions<'o>,
    columns: Vec<usize>,
    frames: FrameTable,
    table: NodeTable,
    names: NodeNames,
    walk: NodeWalk,
    /// The entry of each node in `table`.
    info: Vec<u32>,
    sums: EntitySums,
    /// The calls. `None` until they are first needed.
    edges: Option<CallEdges>,
    roots: Vec<i64>,
    pub(super) shown: Vec<u32>,
    /// Tags of the nodes that may be shown, computed before `node_count` limits the nodes. Hiding
    /// calls does not change tags.
    tags_before_limit: Option<HashMap<u32, NodeTags>>,
}

impl<'a, 'o> GraphDraft<'a, 'o> {
    pub(super) fn new(
        profile: &'a Profile,
        options: &'o GraphOptions<'o>,
    ) -> Result<Self, TotalsError> {
        let divisor = options.mean_divisor.iter();
        let columns: Vec<usize> = options.columns.iter().chain(divisor).copied().collect();
        if !options.wrapping {
            // The total bounds every sum below.
            whole_totals(profile, &columns)?;
        }
        let frames = FrameTable::new(profile, false);
        let table = NodeTable::new(profile, &frames, &options.trim, options.objects);
        let (walk, info) = match options.call_tree {
            true => {
                let mut paths = CallPaths::new(profile, &frames, &table.frame_keys, &columns);
                let info = std::mem::take(&mut paths.info);
                (NodeWalk::Paths(paths), info)
            }
            false => {
                let all = (0..table.key.len() as u32).collect();
                (NodeWalk::Frames(table.frame_keys.clone()), all)
            }
        };
        let sums = walk.sums(profile, &frames, &columns, info.len());
        let edges = match &walk {
            NodeWalk::Paths(paths) => Some(paths.edges(&sums)),
            NodeWalk::Frames(_) => None,
        };
        let mut draft = Self {
            names: NodeNames::new(profile, &table),
            profile,
            options,
            columns,
            frames,
            table,
            walk,
            info,
            sums,
            edges,
            roots: Vec::new(),
            shown: Vec::new(),
            tags_before_limit: None,
        };
        draft.show_nodes_with_values();
        Ok(draft)
    }

    pub(super) fn flat(&self, node: u32) -> i64 {
        self.sums.flat[node as usize * self.columns.len()]
    }

    pub(super) fn cum(&self, node: u32) -> i64 {
        self.sums.cum[node as usize * self.columns.len()]
    }

    /// Sets `shown` to all nodes with a value other than 0, but without negative nodes if the
    /// options drop them.
    fn show_nodes_with_values(&mut self) {
        let width = self.columns.len();
        let values = self.options.columns.len();
        let some = |of: &[i64], node: u32| {
            let at = node as usize * width;
            of[at..at + values].iter().any(|&value| value != 0)
        };
        let nodes = 0..self.info.len() as u32;
        self.shown = nodes
            .filter(|&node| some(&self.sums.flat, node) || some(&self.sums.cum, node))
            .filter(|&node| {
                let negative = match self.flat(node) {
                    0 => self.cum(node) < 0,
                    flat => flat < 0,
                };
                !(self.options.drop_negative && negative)
            })
            .collect();
        if let NodeWalk::Paths(paths) = &self.walk {
            // pprof finds the nodes of a tree by their callers.
            let first = paths.first_callees();
            self.shown
                .sort_by_key(|&node| match paths.parent[node as usize] {
                    NO_NODE => 0,
                    caller => first[caller as usize],
                });
        }
    }

    /// Hides all shown nodes except `kept`. The stacks of samples then skip the hidden nodes.
    pub(super) fn keep(&mut self, kept: Vec<u32>) {
        let mut stays = vec![false; self.info.len()];
        kept.iter().for_each(|&node| stays[node as usize] = true);
        match &mut self.walk {
            NodeWalk::Paths(_) => {
                self.tags_before_limit = None;
                let mut removed = vec![false; self.info.len()];
                let gone = self.shown.iter().filter(|&&node| !stays[node as usize]);
                gone.for_each(|&node| removed[node as usize] = true);
                if let Some(edges) = &mut self.edges {
                    tree::remove(edges, &removed);
                }
                self.shown = kept;
            }
            NodeWalk::Frames(node_of) => {
                self.edges = None;
                let GraphOptions { trim, objects, .. } = self.options;
                match self
                    .table
                    .trim_again(self.profile, &self.frames, trim, *objects)
                {
                    None => {
                        let gone = node_of
                            .iter_mut()
                            .filter(|n| **n != NO_NODE && !stays[**n as usize]);
                        gone.for_each(|node| *node = NO_NODE);
                        self.shown = kept;
                    }
                    Some(table) => self.rename(table, &stays),
                }
            }
        }
    }

    /// Replaces the node table by one with other file names. A new node is shown only if `stays` is
    /// true for the old node with the same key.
    fn rename(&mut self, table: NodeTable, stays: &[bool]) {
        self.tags_before_limit = None;
        let keys = table.key.iter();
        let same = keys.map(|&key| self.table.find(key).is_some_and(|n| stays[n as usize]));
        let same: Vec<bool> = same.collect();
        let shown = |&node: &u32| if same[node as usize] { node } else { NO_NODE };
        self.walk = NodeWalk::Frames(table.frame_keys.iter().map(shown).collect());
        self.info = (0..table.key.len() as u32).collect();
        self.names = NodeNames::new(self.profile, &table);
        self.table = table;
        self.sums = self
            .walk
            .sums(self.profile, &self.frames, &self.columns, self.info.len());
        self.show_nodes_with_values();
    }

    fn edges(&mut self) -> &mut CallEdges {
        self.edges.get_or_insert_with(|| match &self.walk {
            NodeWalk::Frames(node_of) if self.options.calls == CallSelection::Outermost => {
                let functions = self.table.functions();
                let (profile, frames, columns) = (self.profile, &self.frames, &self.columns);
                let (edges, roots) = outermost_calls(profile, frames, node_of, &functions, columns);
                self.roots = roots;
                edges
            }
            NodeWalk::Frames(node_of) => calls(
                self.profile,
                &self.frames,
                node_of,
                self.info.len(),
                &self.columns,
            ),
            NodeWalk::Paths(paths) => paths.edges(&self.sums),
        })
    }

    pub(super) fn sort(&mut self) {
        let mut shown = std::mem::take(&mut self.shown);
        if self.options.picture.is_some() {
            self.edges();
        }
        let nodes = order::NodeOrder {
            names: &self.names,
            info: &self.info,
            sums: &self.sums,
        };
        match (&self.options.picture, &self.edges) {
            (Some(_), Some(edges)) => nodes.sort_by_entropy(&mut shown, edges),
            _ if self.options.sort_by_cum => nodes.sort_by_cum(&mut shown),
            _ => nodes.sort_by_flat(&mut shown),
        }
        self.shown = shown;
    }

    fn is_shown(&self) -> Vec<bool> {
        let mut is = vec![false; self.info.len()];
        self.shown.iter().for_each(|&node| is[node as usize] = true);
        is
    }

    /// Removes the calls that lead to shown nodes and are lighter than `least`. Returns the number
    /// of removed calls; 0 if the graph has no calls.
    pub(super) fn trim_edges(&mut self, least: i64) -> usize {
        if self.options.calls == CallSelection::None && self.options.picture.is_none() {
            return 0;
        }
        let shown = self.is_shown();
        self.edges().trim(&shown, least)
    }

    /// Returns how many of the shown nodes fit into a limit of `count`. In a picture, the tags of
    /// nodes count towards the limit, too.
    pub(super) fn count_fitting_nodes(
        &mut self,
        count: usize,
        least: i64,
    ) -> Result<usize, TotalsError> {
        let nodes = &self.shown[..count.min(self.shown.len())];
        if self.options.picture.is_none() {
            return Ok(nodes.len());
        }
        let tags = self.tags(nodes, least)?;
        let tags = self.tags_before_limit.insert(tags);
        let mut taken = 0;
        for (at, node) in nodes.iter().enumerate() {
            let tags = tags.get(node).map_or(0, NodeTags::count_with_flat);
            taken += tags.min(MAX_TAGS) + 1;
            if taken >= count {
                return Ok(at + 1);
            }
        }
        Ok(nodes.len())
    }

    fn tags(&self, nodes: &[u32], least: i64) -> Result<HashMap<u32, NodeTags>, TotalsError> {
        let Some(picture) = &self.options.picture else {
            return Ok(HashMap::new());
        };
        let mut wanted = vec![false; self.info.len()];
        nodes.iter().for_each(|&node| wanted[node as usize] = true);
        let mut tags = tags(
            self.profile,
            &self.frames,
            &self.walk,
            &self.columns,
            &wanted,
            picture.size_name,
            self.options.wrapping,
        )?;
        tags.values_mut().for_each(|tags| tags.trim(least));
        Ok(tags)
    }

    /// Returns the tags of the nodes that are still shown.
    fn tags_of_shown(&mut self, least: i64) -> Result<HashMap<u32, NodeTags>, TotalsError> {
        let Some(mut tags) = self.tags_before_limit.take() else {
            return self.tags(&self.shown, least);
        };
        let shown = self.is_shown();
        tags.retain(|&node, _| shown[node as usize]);
        Ok(tags)
    }

    /// Builds the graph. `counts` holds three numbers: the nodes before `node_count` limited them,
    /// the dropped nodes, and the dropped edges.
    pub(super) fn finish(
        mut self,
        least: i64,
        counts: [usize; 3],
    ) -> Result<CallGraph<'a>, TotalsError> {
        let tags = self.tags_of_shown(least)?;
        let mut edges = self.edges.take().unwrap_or_default();
        let nodes = self.info.len();
        let sorted = |edges: &CallEdges, side: usize| {
            let end = |edge: &CallEdge| [edge.callee, edge.caller][side];
            let mut lists = NodeAdjacency::new(&edges.edge, nodes, end);
            order::sort_edges(
                &mut lists,
                side,
                &self.shown,
                edges,
                &self.names,
                &self.info,
            );
            lists
        };
        let mut callers = match self.options.calls {
            // This graph is for callgrind, which needs no order of callers.
            CallSelection::Outermost => NodeAdjacency::new(&edges.edge, nodes, |edge| edge.callee),
            CallSelection::None | CallSelection::Each => sorted(&edges, CALLER_END),
        };
        if self.options.picture.is_some() {
            let mut removed =
                redundant::find_redundant(&edges, &callers, &self.shown, nodes).into_iter();
            edges.edge.retain(|_| removed.next() == Some(false));
            callers = sorted(&edges, CALLER_END);
        }
        let callees = sorted(&edges, CALLEE_END);
        let [of_nodes, dropped_nodes, dropped_edges] = counts;
        Ok(CallGraph {
            profile: self.profile,
            callers,
            callees,
            table: self.table,
            names: self.names,
            info: self.info,
            parent: match self.walk {
                NodeWalk::Paths(paths) => Some(paths.parent),
                NodeWalk::Frames(_) => None,
            },
            sums: self.sums,
            divided: self.options.mean_divisor.is_some(),
            shown: self.shown,
            edges,
            roots: self.roots,
            tags,
            total_nodes: of_nodes,
            dropped_nodes,
            dropped_edges,
        })
    }
}
