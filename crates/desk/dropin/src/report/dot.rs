//! `pprof -dot`: the graph for Graphviz, with sizes and colours by the values of the nodes.

use std::io::Write;

use crate::graph::{CallEdge, CallGraph, NodeInfo, base};
use heapprof_profile::Profile;

use super::colour::colour;
use super::header::{report_labels, title};
use super::measurement::percentage;
use super::nodelet::NodeletWriter;
use super::options::{PprofReportOptions, PprofValueFormatter};
use super::short_name::shorten;
use super::top::report_counts;
use super::{GraphPurpose, graph, output_unit};
use crate::error::DropinError;

/// Writes the report `-dot`: the call graph of a profile as a picture for Graphviz.
pub fn dot(
    profile: &Profile,
    options: &PprofReportOptions,
    mut writer: impl Write,
) -> Result<(), DropinError> {
    let graph = graph(profile, options, GraphPurpose::Dot)?;
    let values = options.values_in(&output_unit(&graph, options, false));
    let counts = report_counts(&graph, graph.dropped_edges);
    let labels = report_labels(profile, options, &values, &counts, true);
    let title = title(profile);
    let graph_name = if title.is_empty() { "unnamed" } else { title };
    writeln!(writer, "digraph \"{graph_name}\" {{")?;
    writeln!(writer, "node [style=filled fillcolor=\"#f8f8f8\"]")?;
    let escaped: Vec<String> = labels.iter().map(|label| escape(label)).collect();
    let tooltip = match title {
        "" => String::new(),
        title => format!(" tooltip=\"{title}\""),
    };
    writeln!(
        writer,
        "subgraph cluster_L {{ \"{}\" [shape=box fontsize=16 label=\"{}\\l\"{tooltip}] }}",
        escaped[0],
        escaped.join("\\l")
    )?;
    let picture = DotWriter {
        graph: &graph,
        values: &values,
        total: options.total,
    };
    picture.write(options, &mut writer)?;
    writeln!(writer, "}}")?;
    Ok(())
}

struct DotWriter<'a> {
    graph: &'a CallGraph<'a>,
    values: &'a PprofValueFormatter,
    total: i64,
}

impl DotWriter<'_> {
    fn write(&self, options: &PprofReportOptions, mut writer: impl Write) -> std::io::Result<()> {
        let graph = self.graph;
        let sizes = graph.shown().iter().map(|&node| size(graph.flat(node)));
        let largest = sizes.fold(f64::MIN, f64::max);
        // A node that is not shown but is still called has the number 0.
        let mut number = vec![0usize; graph.nodes()];
        let mut with_tags = vec![false; graph.nodes()];
        let nodelets = NodeletWriter::new(self.values, options);
        for (at, &node) in graph.shown().iter().enumerate() {
            number[node as usize] = at + 1;
            self.node(node, at + 1, largest, &mut writer)?;
            let leaf = graph.callees(node).next().is_none();
            let tags = graph.tags(node);
            let text = tags.map_or(String::new(), |tags| nodelets.boxes(tags, at + 1, !leaf));
            with_tags[node as usize] = !text.is_empty();
            writer.write_all(text.as_bytes())?;
        }
        for edge in graph.edges() {
            let [from, to] = [edge.caller, edge.callee].map(|node| number[node as usize]);
            self.edge(edge, from, to, with_tags[edge.caller as usize], &mut writer)?;
        }
        Ok(())
    }

    fn share(&self, value: i64) -> String {
        percentage(value, self.total).trim().to_string()
    }

    /// Returns a value as a share of the total.
    fn score(&self, value: i64) -> f64 {
        value as f64 / self.total.wrapping_abs() as f64
    }

    fn node(
        &self,
        node: u32,
        n: usize,
        largest: f64,
        mut writer: impl Write,
    ) -> std::io::Result<()> {
        let (flat, cum) = (self.graph.flat(node), self.graph.cum(node));
        let mut label = multiline_name(self.graph.info(node));
        let flat_text = self.values.show(flat);
        match flat {
            0 => label.push('0'),
            _ => label.push_str(&format!("{flat_text} ({})", self.share(flat))),
        }
        let mut cum_text = flat_text;
        if cum != flat {
            label.push_str(if flat == 0 { " " } else { "\\n" });
            cum_text = self.values.show(cum);
            label.push_str(&format!("of {cum_text} ({})", self.share(cum)));
        }
        // Font sizes are from 8 to 24. The square root gives small values more than their share.
        let font = match largest != 0.0 && flat != 0 && size(flat) <= largest {
            true => 8 + (16.0 * (size(flat) / largest).sqrt()).ceil() as i64,
            false => 8,
        };
        let score = self.score(cum);
        writeln!(
            writer,
            "N{n} [label=\"{label}\" id=\"node{n}\" fontsize={font} shape=box tooltip=\"{} \
             ({cum_text})\" color=\"{}\" fillcolor=\"{}\"]",
            escape(self.graph.name(node)),
            colour(score, false),
            colour(score, true),
        )
    }

    fn edge(
        &self,
        edge: &CallEdge,
        from: usize,
        to: usize,
        with_tags: bool,
        mut writer: impl Write,
    ) -> std::io::Result<()> {
        let value = self.graph.weight_value(edge);
        let weight = self.values.show(value);
        let inline = if edge.inline { "\\n (inline)" } else { "" };
        let mut attributes = format!("label=\" {weight}{inline}\"");
        if self.total != 0 {
            // In a difference, an edge may weigh more than the total.
            let steps = |of: i64| {
                let part = value.wrapping_mul(of).wrapping_div(self.total);
                part.wrapping_abs().min(of).wrapping_add(1)
            };
            if steps(100) > 1 {
                attributes.push_str(&format!(" weight={}", steps(100)));
            }
            if steps(5) > 1 {
                attributes.push_str(&format!(" penwidth={}", steps(5)));
            }
            attributes.push_str(&format!(" color=\"{}\"", colour(self.score(value), false)));
        }
        let arrow = if edge.residual { "..." } else { "->" };
        let [caller, callee] = [edge.caller, edge.callee].map(|node| escape(self.graph.name(node)));
        let tooltip = format!("\"{caller} {arrow} {callee} ({weight})\"");
        attributes.push_str(&format!(" tooltip={tooltip} labeltooltip={tooltip}"));
        if edge.residual {
            attributes.push_str(" style=\"dotted\"");
        }
        if with_tags {
            attributes.push_str(" minlen=2");
        }
        writeln!(writer, "N{from} -> N{to} [{attributes}]")
    }
}

fn size(value: i64) -> f64 {
    value.wrapping_abs() as f64
}

/// Returns the name of a node, with each part on its own line.
fn multiline_name(info: NodeInfo<'_>) -> String {
    // `[...]` stands for Go's type parameters, and its dots do not end a line.
    let name = escape(&shorten(info.name))
        .replace("::", "\\n")
        .replace("[...]", "[…]")
        .replace('.', "\\n");
    let file = if info.file.is_empty() {
        ""
    } else {
        base(info.file)
    };
    let parts = NodeInfo {
        name: &name,
        file,
        ..info
    };
    parts.parts().join("\\n") + "\\n"
}

/// Escapes a text for a Graphviz string, and aligns the lines of the text to the left.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\l")
}
