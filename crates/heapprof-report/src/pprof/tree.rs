//! `pprof -tree` and `-peek`: each node between its callers and its callees.

use std::io::Write;

use heapprof_analysis::graph::Edge;
use heapprof_profile::Profile;

use super::measurement::percentage;
use super::options::Options;
use super::top::headed;
use crate::error::Error;

const SEPARATOR: &str = "----------------------------------------------------------+-------------";
const LEGEND: &str = "      flat  flat%   sum%        cum   cum%   calls calls% + context \t \t ";

/// Writes the nodes; with [`Options::symbol`] only those whose name it matches, of which there must be one.
pub fn tree(profile: &Profile, options: &Options, mut writer: impl Write) -> Result<(), Error> {
    let (graph, values, labels) = headed(profile, options, true)?;
    let total = options.total;
    let mut nodes = graph.shown().to_vec();
    if let Some(symbol) = &options.symbol {
        nodes.retain(|&node| symbol.is_match(graph.name(node)));
        if nodes.is_empty() {
            return Err(Error::NoMatch(symbol.to_string()));
        }
    }
    writeln!(writer, "{}\n{SEPARATOR}\n{LEGEND}", labels.join("\n"))?;
    let mut sum = 0i64;
    for node in nodes {
        let (flat, cum) = (graph.flat(node), graph.cum(node));
        sum += flat;
        let call = |writer: &mut dyn Write, edge: &Edge, other: u32| {
            let weight = graph.weight(edge);
            let inline = if edge.inline { " (inline)" } else { "" };
            let share = percentage(weight, cum);
            let name = graph.name(other);
            writeln!(
                writer,
                "{:>50} {share} |   {name}{inline}",
                values.show(weight)
            )
        };
        writeln!(writer, "{SEPARATOR}")?;
        for edge in graph.callers(node) {
            call(&mut writer, edge, edge.caller)?;
        }
        writeln!(
            writer,
            "{:>10} {} {} {:>10} {}                | {}",
            values.show(flat),
            percentage(flat, total),
            percentage(sum, total),
            values.show(cum),
            percentage(cum, total),
            graph.name(node),
        )?;
        for edge in graph.callees(node) {
            call(&mut writer, edge, edge.callee)?;
        }
    }
    if !graph.shown().is_empty() {
        writeln!(writer, "{SEPARATOR}")?;
    }
    Ok(())
}
