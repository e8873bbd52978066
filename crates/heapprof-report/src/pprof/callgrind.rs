//! `pprof -callgrind`: nodes and calls for KCachegrind, names and positions compressed.
//!
//! Costs are whole numbers of the shown unit, as pprof has them; `heapprof convert --to callgrind` counts in the
//! profile's own units and has all sample types.

use std::collections::HashMap;
use std::io::Write;

use heapprof_analysis::graph::{Graph, NodeInfo, truncated};
use heapprof_profile::Profile;

use super::measurement::Scale;
use super::options::Options;
use super::{For, graph, output_unit};
use crate::error::Error;
use crate::numbered::Numbered;

/// Writes the graph, nothing trimmed.
pub fn callgrind(
    profile: &Profile,
    options: &Options,
    mut writer: impl Write,
) -> Result<(), Error> {
    let options = Options {
        node_count: 0,
        node_fraction: 0.0,
        edge_fraction: 0.0,
        ..options.clone()
    };
    let graph = graph(profile, &options, For::Callgrind)?;
    let unit = output_unit(&graph, &options, true);
    let scale = Scale::new(&options.sample_unit, &unit);
    let scaled = |value: i64| truncated(scale.apply(value).0).to_string();
    writeln!(writer, "positions: instr line")?;
    writeln!(writer, "events: {}({unit})", options.sample_type)?;
    let names = unambiguous(&graph);
    let [mut objects, mut files, mut functions] = [(); 3].map(|()| Numbered::default());
    // File and name of each callee that was written before.
    let mut known: Vec<Option<[String; 2]>> = vec![None; graph.nodes()];
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
        for edge in graph.callees(node) {
            let callee = graph.info(edge.callee);
            let name = names.get(&edge.callee).map_or("", String::as_str);
            let [file, function] = match &known[edge.callee as usize] {
                Some(numbers) => numbers.clone(),
                None => {
                    let first = [files.name(callee.file), functions.name(name)];
                    known[edge.callee as usize] =
                        Some([files.name(callee.file), functions.name(name)]);
                    first
                }
            };
            writeln!(writer, "cfl={file}\ncfn={function}")?;
            // How often it was called a profile of samples can't say.
            let address = position(from, callee.address);
            writeln!(writer, "calls=0 {address} {}", callee.line)?;
            writeln!(writer, "* * {}", scaled(graph.weight(edge)))?;
        }
        before = Some(info);
    }
    Ok(())
}

/// What the lines before a record say.
fn function(info: NodeInfo<'_>) -> [&str; 3] {
    [info.object, info.file, info.name]
}

/// An address, as the distance from the one before where that is shorter.
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

/// The name of each shown node, with `[n/of]` where several functions have the same name and file: those of
/// different binaries, and in a call tree those on different ways.
fn unambiguous(graph: &Graph<'_>) -> HashMap<u32, String> {
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
