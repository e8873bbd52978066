//! `pprof -callgrind`: nodes and calls for KCachegrind, with compressed names and positions.
//!
//! Costs are whole numbers in the requested unit, as in pprof. `heapprof convert --to callgrind`
//! writes all sample types, in the profile's own units.

use std::collections::HashMap;
use std::io::Write;

use crate::graph::{CallGraph, NodeInfo, truncate_as_go};
use heapprof_profile::Profile;

use super::measurement::UnitScale;
use super::options::PprofReportOptions;
use super::{GraphPurpose, graph, output_unit};
use crate::error::DropinError;
use crate::name_numbers::NameNumbers;
use heapprof_totals::fetch::fetch;

/// Writes the report `-callgrind`: the call graph of a profile, without trimming it.
pub fn callgrind(
    profile: &Profile,
    options: &PprofReportOptions,
    mut writer: impl Write,
) -> Result<(), DropinError> {
    let options = PprofReportOptions {
        node_count: 0,
        node_fraction: 0.0,
        edge_fraction: 0.0,
        ..options.clone()
    };
    let graph = graph(profile, &options, GraphPurpose::Callgrind)?;
    let unit = output_unit(&graph, &options, true);
    let scale = UnitScale::new(&options.sample_unit, &unit);
    let scaled = |value: i64| truncate_as_go(scale.apply(value).0);
    writeln!(writer, "positions: instr line")?;
    writeln!(writer, "events: {}({unit})", options.sample_type)?;
    let names = unambiguous_names(&graph);
    let [mut objects, mut files, mut functions] = [(); 3].map(|()| NameNumbers::default());
    let mut known = WrittenNodes::new(graph.nodes());
    let mut before: Option<NodeInfo<'_>> = None;
    for &node in graph.shown() {
        let info = graph.info(node);
        if before.is_none_or(|before| function(before) != function(info)) {
            writeln!(writer)?;
            writeln!(writer, "ob={}", objects.name(info.object))?;
            writeln!(writer, "fl={}", files.name(info.file))?;
            writeln!(writer, "fn={}", functions.name(info.name))?;
        }
        let from = before.map(|before| before.address);
        let address = position(from, info.address);
        writeln!(
            writer,
            "{address} {} {}",
            info.line,
            scaled(graph.flat(node))
        )?;
        known.fetch(&graph, node);
        for edge in graph.callees(node) {
            if known.callees[edge.callee as usize].names.1 == 0 {
                let info = graph.info(edge.callee);
                let name = names.get(&edge.callee).map_or("", String::as_str);
                let [file, function] = [files.name(info.file), functions.name(name)];
                writeln!(writer, "cfl={file}\ncfn={function}")?;
                // From here on, the names are written as their numbers.
                let again = [files.name(info.file), functions.name(name)];
                known.add(edge.callee, &info, again);
            } else {
                let (start, end) = known.callees[edge.callee as usize].names;
                writer.write_all(&known.text.as_bytes()[start..end])?;
            }
            let callee = &known.callees[edge.callee as usize];
            // A profile of samples does not say how often the function was called.
            let address = position(from, callee.address);
            let (line, weight) = (callee.line, scaled(graph.weight(edge)));
            writeln!(writer, "calls=0 {address} {line}\n* * {weight}")?;
        }
        before = Some(info);
    }
    Ok(())
}

/// Lines of earlier calls, to copy for later calls of the same nodes.
struct WrittenNodes {
    callees: Vec<CalleeLines>,
    /// The lines with the file and name of each called node. The lines of all nodes follow each
    /// other.
    text: String,
}

/// Range of a node's lines, and the node's address and line. The range ends at 0 if the node was
/// not called yet.
#[derive(Clone, Copy, Default)]
struct CalleeLines {
    names: (usize, usize),
    address: u64,
    line: i64,
}

impl WrittenNodes {
    fn new(nodes: usize) -> Self {
        Self {
            callees: vec![CalleeLines::default(); nodes],
            text: String::new(),
        }
    }

    fn add(&mut self, node: u32, info: &NodeInfo<'_>, [file, function]: [String; 2]) {
        let start = self.text.len();
        self.text.extend(["cfl=", &file, "\ncfn=", &function, "\n"]);
        self.callees[node as usize] = CalleeLines {
            names: (start, self.text.len()),
            address: info.address,
            line: info.line,
        };
    }

    /// [Prefetches](fetch) the data for the calls of a node into the processor's cache.
    fn fetch(&self, graph: &CallGraph<'_>, node: u32) {
        let text = self.text.as_bytes();
        fetch(graph.callees(node).map(|edge| {
            let text = text.get(self.callees[edge.callee as usize].names.0);
            graph.weight(edge) as u8 ^ text.copied().unwrap_or_default()
        }));
    }
}

/// Returns the texts that identify a node's function: binary, file and name.
fn function(info: NodeInfo<'_>) -> [&str; 3] {
    [info.object, info.file, info.name]
}

/// Returns an address as text, or its distance from the previous address `before` if that is
/// shorter.
fn position(before: Option<u64>, address: u64) -> String {
    let absolute = format!("{address:#x}");
    let Some(before) = before else {
        return absolute;
    };
    if before == address {
        return "*".to_string();
    }
    let relative = format!("{:+}", address.wrapping_sub(before) as i64);
    match relative.len() < absolute.len() {
        true => relative,
        false => absolute,
    }
}

/// Returns the name of each shown node. If several functions have the same name and file, the
/// suffix `[n/callees]` distinguishes them. These functions are in different binaries or, in a call
/// tree, on different paths.
fn unambiguous_names(graph: &CallGraph<'_>) -> HashMap<u32, String> {
    let mut functions: HashMap<(&str, &str), HashMap<_, usize>> = HashMap::new();
    let mut numbers = Vec::with_capacity(graph.shown().len());
    for &node in graph.shown() {
        let info = graph.info(node);
        let function = match (info.address, info.line) {
            (0, 0) => info,
            _ => NodeInfo {
                address: 0,
                line: 0,
                column: 0,
                ..info
            },
        };
        let alike = functions.entry((info.file, info.name)).or_default();
        let next = alike.len() + 1;
        numbers.push(*alike.entry((graph.parent(node), function)).or_insert(next));
    }
    let nodes = graph.shown().iter().zip(numbers);
    nodes
        .map(|(&node, number)| {
            let NodeInfo { name, file, .. } = graph.info(node);
            let name = match functions.get(&(file, name)).map_or(1, HashMap::len) {
                1 => name.to_string(),
                of => format!("{name} [{number}/{of}]"),
            };
            (node, name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        let table = [
            (None, 0, "0x0"),
            (Some(0), 0, "*"),
            (Some(0x1000), 0x1010, "+16"),
            (Some(0x1010), 0x1000, "-16"),
            (Some(0x100000), 0x1, "0x1"),
            (Some(0), u64::MAX, "-1"),
        ];
        for (before, address, expected) in table {
            assert_eq!(position(before, address), expected);
        }
    }
}
