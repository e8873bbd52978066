//! The call graph of the commands `gv`, `evince` and `web`, for Graphviz.
//!
//! Sizes, colours and the selection of nodes and edges are those of the scripts. Edges with equal
//! values have no order there. Here their nodes decide.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};

use super::PerlShell;
use super::command::PictureViewer;
use super::viewers;
use crate::jeprof::options::JeprofArguments;
use crate::jeprof::report::{JeprofMeasure, percent};
use crate::jeprof::rows::RowStyle;
use crate::jeprof::stacks::JeprofStacks;
use crate::pprof;

/// Limits on the nodes and edges of a picture.
#[derive(Clone, Copy, Debug)]
struct PictureLimits {
    /// Maximum number of nodes.
    nodes: usize,
    /// Nodes with no more than this share of the total are left out.
    node_fraction: f64,
    /// Edges with no more than this share of the total are left out.
    edge_fraction: f64,
}

/// Maximum number of edges that begin, and that end, at a node. Further edges are only shown if
/// their node would have none.
const MAX_DEGREE: usize = 8;

/// Time until a browser that is already running has read a page.
const LOADING_TIME: Duration = Duration::from_secs(5);

impl PictureLimits {
    fn new(typed: &JeprofArguments) -> Self {
        Self {
            nodes: typed.text("nodecount").parse().unwrap_or(80),
            node_fraction: typed.text("nodefraction").parse().unwrap_or(0.005),
            edge_fraction: typed.text("edgefraction").parse().unwrap_or(0.001),
        }
    }
}

impl PerlShell<'_> {
    /// Draws the call graph and shows it. With `waits`, the picture is shown before this returns.
    pub(super) fn show_picture(
        &mut self,
        stacks: Cow<'_, JeprofStacks>,
        head: &str,
        viewer: PictureViewer,
        waits: bool,
    ) -> Result<()> {
        self.print(|out| Ok(out.write_all(head.as_bytes())?))?;
        let graph = RowGraph::new(&stacks, self.report.column, RowStyle::new(self.typed));
        let limits = PictureLimits::new(self.typed);
        let nodes = graph.chosen_nodes(limits);
        if nodes.is_empty() {
            bail!("No nodes to print");
        }
        let title = PictureTitle {
            program: self.typed.words.first().map_or("", String::as_str),
            total: self.total,
            measure: self.report.measure,
            is_svg: viewer == PictureViewer::Browser,
        };
        let (node_limit, edge_limit) = graph.cutoffs(limits);
        if node_limit > 0 || edge_limit > 0 {
            let (show, unit) = (|v| title.measure.show(v), title.measure.unit());
            self.host.print_lines(&format!(
                "Dropping nodes with <= {} {unit}; edges with <= {} abs({unit})",
                show(node_limit),
                show(edge_limit)
            ));
        }
        let text = graph.draw(&nodes, limits, &title)?;
        let format = match viewer {
            PictureViewer::Gv => "ps",
            PictureViewer::Evince => "pdf",
            PictureViewer::Browser => "svg",
        };
        let picture = pprof::draw(text.as_bytes(), format)?;
        let (path, file) = self.files.create(format)?;
        let shown = path.display().to_string();
        let body = |out: &mut dyn Write| Ok(out.write_all(&picture)?);
        self.host.write_into(&shown, file, Box::new(body))?;
        match viewer {
            PictureViewer::Gv => viewers::show("gv", &["--noantialias"], &path, waits)?,
            PictureViewer::Evince => viewers::show("evince", &[], &path, waits)?,
            PictureViewer::Browser => {
                viewers::show_in_browser(self.host, &path);
                if waits {
                    // The file is removed when the command ends.
                    std::thread::sleep(LOADING_TIME);
                }
            }
        }
        Ok(())
    }
}

/// The texts and the units of a picture.
struct PictureTitle<'a> {
    program: &'a str,
    total: i128,
    measure: JeprofMeasure,
    is_svg: bool,
}

/// A node of the graph: a row of the report.
#[derive(Debug, Default)]
struct RowNode {
    name: String,
    flat: i128,
    cum: i128,
}

/// The rows of a report, and the calls between them.
#[derive(Debug, Default)]
struct RowGraph {
    nodes: Vec<RowNode>,
    /// The values of calls, by the numbers of caller and callee.
    calls: HashMap<(usize, usize), i128>,
    total: i128,
}

impl RowGraph {
    fn new(stacks: &JeprofStacks, column: usize, style: RowStyle) -> Self {
        let profile = &stacks.profile;
        let mut graph = Self::default();
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut number = |name: String, nodes: &mut Vec<RowNode>| {
            *known.entry(name).or_insert_with_key(|name| {
                nodes.push(RowNode {
                    name: name.clone(),
                    ..RowNode::default()
                });
                nodes.len() - 1
            })
        };
        let of_location: Vec<Vec<usize>> = (profile.location.iter())
            .map(|location| {
                let rows = stacks.rows(location, style).into_iter();
                rows.map(|row| number(row.key, &mut graph.nodes)).collect()
            })
            .collect();
        let mut seen = HashSet::new();
        for i in 0..profile.samples.len() {
            let sample = profile.samples.values(i);
            let value = i128::from(sample.get(column).copied().unwrap_or_default());
            let locations = profile.samples.stack(i).iter();
            let rows = locations.filter_map(|l| of_location.get(l.index()));
            seen.clear();
            let mut callee = None;
            for &row in rows.flatten() {
                if callee.is_none() {
                    graph.total += value;
                    graph.nodes[row].flat += value;
                }
                if seen.insert(row) {
                    graph.nodes[row].cum += value;
                }
                if let Some(callee) = callee.replace(row) {
                    *graph.calls.entry((row, callee)).or_default() += value;
                }
            }
        }
        graph
    }

    /// Returns the values up to which nodes and edges are left out.
    fn cutoffs(&self, limits: PictureLimits) -> (i128, i128) {
        let share = |fraction: f64| (fraction * self.total as f64) as i128;
        (share(limits.node_fraction), share(limits.edge_fraction))
    }

    /// Returns the nodes to draw, in descending order of their cum.
    fn chosen_nodes(&self, limits: PictureLimits) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&n| (Reverse(self.nodes[n].cum.abs()), &self.nodes[n].name));
        order.truncate(limits.nodes);
        let (cutoff, _) = self.cutoffs(limits);
        let is_large = |&n: &usize| self.nodes[n].cum.abs() > cutoff;
        order.truncate(order.iter().rposition(is_large).map_or(0, |n| n + 1));
        order
    }

    /// Returns the graph in Graphviz's language.
    fn draw(
        &self,
        chosen: &[usize],
        limits: PictureLimits,
        title: &PictureTitle<'_>,
    ) -> Result<String> {
        let show = |value: i128| title.measure.show(value);
        let (program, unit) = (quote(title.program), title.measure.unit());
        let (node_limit, edge_limit) = self.cutoffs(limits);
        let mut text = format!(
            "digraph \"{program}; {total} {unit}\" {{\nnode [width=0.375,height=0.25];\n\
             Legend [shape=box,fontsize=24,shape=plaintext,label=\"{program}\\lTotal {unit}: \
             {total}\\lFocusing on: {}\\lDropped nodes with <= {} abs({unit})\\lDropped edges \
             with <= {} {unit}\\l\"];\n",
            show(self.total),
            show(node_limit),
            show(edge_limit),
            total = show(title.total),
        );
        let mut places = HashMap::new();
        for (&n, place) in chosen.iter().zip(1..) {
            places.insert(n, place);
            self.draw_node(&self.nodes[n], place, title, &mut text)?;
        }
        let mut edges: Vec<(i128, usize, usize, usize)> = self
            .calls
            .iter()
            .filter_map(|(&(caller, callee), &value)| {
                let (from, to) = (*places.get(&caller)?, *places.get(&callee)?);
                Some((value, from, to, callee))
            })
            .collect();
        edges.sort_by_key(|&(value, from, to, _)| (Reverse(value), from, to));
        let (mut begun, mut ended) = (HashMap::new(), HashMap::new());
        for (value, from, to, callee) in edges {
            let ends = ended.get(&to).copied().unwrap_or(0);
            let begins = begun.get(&from).copied().unwrap_or(0);
            let is_drawn =
                ends == 0 || value.abs() > edge_limit && begins < MAX_DEGREE && ends < MAX_DEGREE;
            if !is_drawn {
                continue;
            }
            ended.insert(to, ends + 1);
            begun.insert(from, begins + 1);
            let mut width = match self.total {
                0 => 0.0,
                total => (3.0 * (value as f64 / total as f64)).abs().min(1.0) * 2.0,
            };
            // Browsers draw thinner lines badly.
            if title.is_svg {
                width = f64::max(width, 1.0);
            }
            let dashed = match self.nodes[callee].name.contains("(inline)") {
                true => ",dashed",
                false => "",
            };
            let weight = (value as f64).abs().powf(0.7).min(100_000.0) as i64;
            writeln!(
                text,
                "N{from} -> N{to} [label={}, weight={weight}, \
                 style=\"setlinewidth({width:.6}){dashed}\"];",
                show(value)
            )?;
        }
        text.push_str("}\n");
        Ok(text)
    }

    fn draw_node(
        &self,
        node: &RowNode,
        place: usize,
        title: &PictureTitle<'_>,
        text: &mut String,
    ) -> Result<()> {
        let show = |value: i128| title.measure.show(value);
        let size = match self.total {
            ..=0 => 8.0,
            total => 8.0 + 50.0 * (node.flat as f64 / total as f64).abs().sqrt(),
        };
        let cum = match node.flat == node.cum {
            true => String::new(),
            false => format!(
                "\\rof {} ({})",
                show(node.cum),
                percent(node.cum, self.total)
            ),
        };
        let words: Vec<String> = node.name.split_whitespace().map(quote).collect();
        let name = words.join("\\n").replace("::", "\\n");
        writeln!(
            text,
            "N{place} [label=\"{name}\\n{} ({}){cum}\\r\",shape=box,fontsize={size:.1}];",
            show(node.flat),
            percent(node.flat, self.total),
        )?;
        Ok(())
    }
}

/// Escapes a text within quotes.
fn quote(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
