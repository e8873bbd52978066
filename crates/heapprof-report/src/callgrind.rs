//! `convert --to callgrind`: the call graph for KCachegrind, QCachegrind and callgrind_annotate.
//!
//! Costs are in the profile's own units, an event a sample type. Positions are absolute and callees bear their
//! binary, so that a reader finds what is meant. Format: Valgrind's manual, "Callgrind Format Specification".

use std::borrow::Cow;
use std::io::Write;

use heapprof_analysis::EMPTY_STACK;
use heapprof_analysis::graph::{Calls, Graph, NodeInfo, Options, Trim, base};
use heapprof_profile::Profile;

use crate::error::Error;
use crate::numbered::Numbered;
use crate::table::printable;

/// Writes a record for each function, line and address, with its calls. Errors for negative values: the format has none.
pub fn callgrind(profile: &Profile, mut writer: impl Write) -> Result<(), Error> {
    let width = profile.sample_type.len();
    let samples = &profile.samples;
    let mut no_stack = vec![0i64; width];
    let mut total = vec![0i64; width];
    let graph = Graph::new(
        profile,
        &Options {
            columns: (0..width).collect(),
            mean_divisor: None,
            call_tree: false,
            drop_negative: false,
            objects: true,
            trim: Trim::new("", ""),
            picture: None,
            sort_by_cum: false,
            node_count: 0,
            node_fraction: 0.0,
            edge_fraction: 0.0,
            calls: Calls::Innermost,
        },
    )?;
    // The graph made sure that these sums fit.
    for i in 0..samples.len() {
        for (column, &value) in samples.values(i).iter().enumerate() {
            if value < 0 {
                return Err(Error::Negative);
            }
            total[column] += value;
            if samples.stack(i).is_empty() {
                no_stack[column] += value;
            }
        }
    }
    head(profile, &mut writer)?;
    writeln!(writer, "summary: {}", costs(&total))?;
    records(&graph, &mut writer)?;
    if no_stack.iter().any(|&value| value != 0) {
        writeln!(
            writer,
            "\nob=\nfl=\nfn={EMPTY_STACK}\n0x0 0 {}",
            costs(&no_stack)
        )?;
    }
    Ok(())
}

fn head(profile: &Profile, writer: &mut impl Write) -> std::io::Result<()> {
    writeln!(writer, "# callgrind format\nversion: 1")?;
    writeln!(writer, "creator: heapprof {}", env!("CARGO_PKG_VERSION"))?;
    if let Some(main) = profile.mapping.first() {
        writeln!(writer, "cmd: {}", printable(profile.text(main.filename)))?;
    }
    writeln!(writer, "positions: instr line")?;
    let mut events: Vec<String> = Vec::new();
    for sample_type in &profile.sample_type {
        let [name, unit] =
            [sample_type.r#type, sample_type.unit].map(|id| printable(profile.text(id)));
        let mut event = name.replace([' ', ':', '='], "_");
        while event.is_empty() || events.contains(&event) {
            event.push('_');
        }
        writeln!(writer, "event: {event} : {name} ({unit})")?;
        events.push(event);
    }
    writeln!(writer, "events: {}", events.join(" "))
}

fn records(graph: &Graph<'_>, writer: &mut impl Write) -> std::io::Result<()> {
    let [mut objects, mut files, mut functions] = [(); 3].map(|()| Numbered::default());
    let mut before = None;
    for &node in graph.shown() {
        let info = graph.info(node);
        let name = name(&info);
        let function = Some((info.object, info.file, name.clone()));
        if before != function {
            writeln!(writer, "\nob={}", objects.name(&printable(info.object)))?;
            writeln!(writer, "fl={}", files.name(&printable(info.file)))?;
            writeln!(writer, "fn={}", functions.name(&name))?;
        }
        before = function;
        let own = costs(graph.flats(node));
        writeln!(writer, "{:#x} {} {own}", info.address, line(&info))?;
        for edge in graph.callees(node) {
            let callee = graph.info(edge.callee);
            writeln!(writer, "cob={}", objects.name(&printable(callee.object)))?;
            writeln!(writer, "cfl={}", files.name(&printable(callee.file)))?;
            writeln!(writer, "cfn={}", functions.name(&self::name(&callee)))?;
            // How often a profile can't say; not never.
            writeln!(writer, "calls=1 {:#x} {}", callee.address, line(&callee))?;
            let weights = costs(graph.weights(edge));
            writeln!(writer, "{:#x} {} {weights}", info.address, line(&info))?;
        }
    }
    Ok(())
}

fn costs(values: &[i64]) -> String {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    values.join(" ")
}

/// A line number; the format has no negative ones.
fn line(info: &NodeInfo<'_>) -> i64 {
    info.line.max(0)
}

/// As our reports name a frame.
fn name<'a>(info: &NodeInfo<'a>) -> Cow<'a, str> {
    if !info.name.is_empty() {
        return printable(info.name);
    }
    let binary = format!("[{}]", base(info.object).trim_matches(['[', ']']));
    let name = match (info.address, info.object) {
        (0, "") => "<unknown>".to_string(),
        (0, _) => binary,
        (address, "") => format!("{address:#x}"),
        (address, _) => format!("{address:#x} {binary}"),
    };
    printable(&name).into_owned().into()
}
