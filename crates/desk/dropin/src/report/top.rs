//! `pprof -text`, `-top`, and the rows of the page's view Top: one row for each node.

use std::io::Write;

use crate::graph::CallGraph;
use heapprof_profile::Profile;

use super::header::{ReportCounts, report_labels};
use super::measurement::percentage;
use super::options::{PprofReportOptions, PprofValueFormatter};
use super::{GraphPurpose, graph, output_unit};
use crate::error::DropinError;

/// Returns the numbers of nodes and edges for the lines above a report.
pub(super) fn report_counts(graph: &CallGraph<'_>, dropped_edges: usize) -> ReportCounts {
    ReportCounts {
        flat: graph::sum(graph.shown().iter().map(|&node| graph.flat(node))),
        nodes: graph.shown().len(),
        total_nodes: graph.total_nodes,
        dropped_nodes: graph.dropped_nodes,
        dropped_edges,
    }
}

/// Returns the graph, the formatter for its values, and the lines above the report.
pub(super) fn graph_with_header<'a>(
    profile: &'a Profile,
    options: &PprofReportOptions,
    edges: bool,
) -> Result<(CallGraph<'a>, PprofValueFormatter, Vec<String>), DropinError> {
    let graph = graph(profile, options, GraphPurpose::Text { edges })?;
    let values = options.values_in(&output_unit(&graph, options, false));
    let labels = report_labels(profile, options, &values, &report_counts(&graph, 0), false);
    Ok((graph, values, labels))
}

/// Writes the report `-top`: one row for each node.
pub fn top(
    profile: &Profile,
    options: &PprofReportOptions,
    mut writer: impl Write,
) -> Result<(), DropinError> {
    // The graph needs calls only if some were inlined, because rows show that.
    let inlined = profile.location.iter().any(|l| l.line.len() > 1);
    let (graph, values, labels) = graph_with_header(profile, options, inlined)?;
    let total = options.total;
    writeln!(writer, "{}", labels.join("\n"))?;
    writeln!(writer, "      flat  flat%   sum%        cum   cum%")?;
    let mut sum = 0i64;
    for &node in graph.shown() {
        let (flat, cum) = (graph.flat(node), graph.cum(node));
        sum = sum.wrapping_add(flat);
        let mark = match inline_label(&graph, node) {
            "" => String::new(),
            label => format!(" {label}"),
        };
        writeln!(
            writer,
            "{:>10} {} {} {:>10} {}  {}{mark}",
            values.show(flat),
            percentage(flat, total),
            percentage(sum, total),
            values.show(cum),
            percentage(cum, total),
            graph.name(node),
        )?;
    }
    Ok(())
}

/// Returns whether the calls of a node were inlined, in words; empty if none was.
fn inline_label(graph: &CallGraph<'_>, node: u32) -> &'static str {
    let inlined = graph.callers(node).any(|edge| edge.inline);
    let called = graph.callers(node).any(|edge| !edge.inline);
    match (inlined, called) {
        (true, true) => "(partial-inline)",
        (true, false) => "(inline)",
        (false, _) => "",
    }
}

/// A row of the page's view Top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// The printable name of the node.
    pub name: String,
    /// Whether calls of the node were inlined, in words; empty if none was.
    pub inline_label: &'static str,
    /// The node's own value.
    pub flat: i64,
    /// The node's value with everything that it called.
    pub cum: i64,
    /// `flat` with its unit.
    pub flat_text: String,
    /// `cum` with its unit.
    pub cum_text: String,
}

/// Returns the lines above a report, and its rows in the report's order.
pub fn top_rows(
    profile: &Profile,
    options: &PprofReportOptions,
) -> Result<(Vec<String>, Vec<TopRow>), DropinError> {
    let (graph, values, labels) = graph_with_header(profile, options, true)?;
    let row = |&node: &u32| {
        let (flat, cum) = (graph.flat(node), graph.cum(node));
        TopRow {
            name: graph.name(node).to_string(),
            inline_label: inline_label(&graph, node),
            flat,
            cum,
            flat_text: values.show(flat),
            cum_text: values.show(cum),
        }
    };
    Ok((labels, graph.shown().iter().map(row).collect()))
}
