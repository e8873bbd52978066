//! `pprof -text`, `-top`: one row for each node.

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
        let inlined = graph.callers(node).any(|edge| edge.inline);
        let called = graph.callers(node).any(|edge| !edge.inline);
        let mark = match (inlined, called) {
            (true, true) => " (partial-inline)",
            (true, false) => " (inline)",
            (false, _) => "",
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
