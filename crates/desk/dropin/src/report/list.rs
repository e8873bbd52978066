//! `-list`: source lines of matching functions, with the value of each line.
//!
//! The sums at the head of a function are sums over its lines, so a sample counts once for each
//! line, as in pprof. Source: google/pprof, internal/report/source.go.

use std::collections::BTreeMap;
use std::io::Write;
use std::rc::Rc;

use crate::graph::{CallGraph, NodeInfo};
use heapprof_profile::Profile;

use super::measurement::percentage;
use super::options::PprofReportOptions;
use super::{GraphPurpose, graph};
use crate::error::DropinError;

/// Function that returns the lines of a source file, or the reason why it can't be read.
pub type SourceReader<'a> = &'a dyn Fn(&str) -> Result<Rc<[Vec<u8>]>, String>;

/// Number of lines that are shown after a function's last line with a value. If the start of the
/// function is unknown, as many lines are shown before its first line with a value.
const CONTEXT_LINES: i64 = 5;

/// Prints the functions whose name matches [`PprofReportOptions::symbol`].
pub fn list(
    profile: &Profile,
    options: &PprofReportOptions,
    read: SourceReader<'_>,
    out: &mut dyn Write,
) -> Result<(), DropinError> {
    let whole = PprofReportOptions {
        mean_divisor: None,
        node_count: 0,
        node_fraction: 0.0,
        edge_fraction: 0.0,
        ..options.clone()
    };
    let graph = graph(profile, &whole, GraphPurpose::List)?;
    let wanted = |name: &str| options.symbol.as_ref().is_some_and(|s| s.is_match(name));
    let mut functions: BTreeMap<&str, BTreeMap<&str, Vec<u32>>> = BTreeMap::new();
    for &node in graph.shown() {
        let NodeInfo { name, file, .. } = graph.info(node);
        if wanted(name) {
            let files = functions.entry(name).or_default();
            if !file.is_empty() {
                files.entry(file).or_default().push(node);
            }
        }
    }
    if functions.is_empty() {
        let symbol = options.symbol.as_ref().map(ToString::to_string);
        return Err(DropinError::NoMatch(symbol.unwrap_or_default()));
    }
    let values = options.values();
    writeln!(out, "Total: {}", values.show(options.total))?;
    for (name, files) in functions {
        if files.is_empty() {
            writeln!(out, "No source information for {name}")?;
        }
        for (file, nodes) in files {
            let (flat, cum) = sums(&graph, &nodes);
            writeln!(out, "ROUTINE ======================== {name} in {file}")?;
            writeln!(
                out,
                "{:>10} {:>10} (flat, cum) {} of Total",
                values.show(flat),
                values.show(cum),
                percentage(cum, options.total)
            )?;
            let (first, last) = range(&graph, &nodes);
            if first > last {
                // pprof does not open a file from which it shows no line.
                continue;
            }
            let lines = match read(file) {
                Ok(lines) => lines,
                Err(why) => {
                    writeln!(out, " Error: {why}")?;
                    continue;
                }
            };
            let mut of_line: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
            for &node in &nodes {
                of_line.entry(graph.info(node).line).or_default().push(node);
            }
            for number in first..=last {
                let line = usize::try_from(number - 1)
                    .ok()
                    .and_then(|at| lines.get(at));
                let Some(line) = line else {
                    break;
                };
                let (flat, cum) = sums(&graph, of_line.get(&number).map_or(&[][..], Vec::as_slice));
                let show = |value| match value {
                    0 => ".".to_string(),
                    value => values.show(value),
                };
                write!(out, "{:>10} {:>10} {number:>6}:", show(flat), show(cum))?;
                out.write_all(line)?;
                out.write_all(b"\n")?;
            }
        }
    }
    Ok(())
}

fn sums(graph: &CallGraph<'_>, nodes: &[u32]) -> (i64, i64) {
    // A sample counts once for each line of the function that its stack contains, so the sum may
    // not fit in 64 bits.
    nodes.iter().fold((0, 0), |(flat, cum), &node| {
        let (f, c) = (graph.flat(node), graph.cum(node));
        (i64::wrapping_add(flat, f), i64::wrapping_add(cum, c))
    })
}

/// Returns the first and the last line number to show for a function, whose nodes are `nodes`.
fn range(graph: &CallGraph<'_>, nodes: &[u32]) -> (i64, i64) {
    let info = || nodes.iter().map(|&node| graph.info(node));
    let first = info().map(|i| match i.start_line {
        0 => i.line.saturating_sub(CONTEXT_LINES),
        start => start,
    });
    let last = info().map(|i| i.line.saturating_add(CONTEXT_LINES));
    (first.min().unwrap_or(1).max(1), last.max().unwrap_or(0))
}
