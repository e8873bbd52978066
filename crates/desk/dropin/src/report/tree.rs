//! `pprof -tree` and `-peek`: each node between its callers and its callees.

use std::io::Write;

use crate::graph::CallEdge;
use heapprof_profile::Profile;

use super::measurement::percentage;
use super::options::PprofReportOptions;
use super::text::{TextSpool, push_aligned};
use super::top::graph_with_header;
use crate::error::DropinError;
use heapprof_totals::fetch::fetch;

const SEPARATOR: &str = "----------------------------------------------------------+-------------";
const LEGEND: &str = "      flat  flat%   sum%        cum   cum%   calls calls% + context \t \t ";

/// Writes the nodes with their callers and callees. With [`PprofReportOptions::symbol`] it writes
/// only the nodes whose name matches, and fails if there is none.
pub fn tree(
    profile: &Profile,
    options: &PprofReportOptions,
    mut writer: impl Write,
) -> Result<(), DropinError> {
    let (graph, values, labels) = graph_with_header(profile, options, true)?;
    let total = options.total;
    let mut nodes = graph.shown().to_vec();
    if let Some(symbol) = &options.symbol {
        nodes.retain(|&node| symbol.is_match(graph.name(node)));
        if nodes.is_empty() {
            return Err(DropinError::NoMatch(symbol.to_string()));
        }
    }
    let mut out = TextSpool::new(&mut writer);
    *out.text() += &format!("{}\n{SEPARATOR}\n{LEGEND}\n", labels.join("\n"));
    let mut sum = 0i64;
    for node in nodes {
        let (flat, cum) = (graph.flat(node), graph.cum(node));
        sum = sum.wrapping_add(flat);
        let call = |text: &mut String, edge: &CallEdge, other: u32| {
            let weight = graph.weight(edge);
            push_aligned(text, &values.show(weight), 50);
            *text += " ";
            *text += &percentage(weight, cum);
            *text += " |   ";
            *text += graph.name(other);
            *text += if edge.inline { " (inline)\n" } else { "\n" };
        };
        let text = out.text();
        *text += SEPARATOR;
        *text += "\n";
        let others = graph.callers(node).map(|edge| (edge, edge.caller));
        let others = others.chain(graph.callees(node).map(|edge| (edge, edge.callee)));
        fetch(others.map(|(edge, other)| {
            let name = graph.name(other).as_bytes().first();
            graph.weight(edge) as u8 ^ name.copied().unwrap_or_default()
        }));
        graph
            .callers(node)
            .for_each(|edge| call(text, edge, edge.caller));
        *text += &format!(
            "{:>10} {} {} {:>10} {}                | {}\n",
            values.show(flat),
            percentage(flat, total),
            percentage(sum, total),
            values.show(cum),
            percentage(cum, total),
            graph.name(node),
        );
        graph
            .callees(node)
            .for_each(|edge| call(text, edge, edge.callee));
        out.spill()?;
    }
    if !graph.shown().is_empty() {
        *out.text() += SEPARATOR;
        *out.text() += "\n";
    }
    Ok(out.finish()?)
}
