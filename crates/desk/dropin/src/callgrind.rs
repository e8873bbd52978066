//! `convert --to callgrind`: the call graph for KCachegrind, QCachegrind and callgrind_annotate.
//!
//! Costs are in the profile's own units, with one event for each sample type. Positions are
//! absolute, and a call names the callee's binary, so that a reader finds the right function.
//! Format: Valgrind's manual, "Callgrind Format Specification".
//!
//! Readers take the sum of the calls to a function as its inclusive cost (KCachegrind's
//! tracedata.cpp, `if there are callers`). So each sample has one call to each of its functions,
//! and all stacks begin with the same function, `(root)`.

use std::borrow::Cow;
use std::io::Write;

use crate::graph::{CallGraph, CallSelection, GraphOptions, NodeInfo, PathTrimmer, base};
use heapprof_profile::Profile;
use heapprof_totals::entity::EMPTY_STACK;

use crate::error::DropinError;
use crate::name_numbers::NameNumbers;
use heapprof_text::printable;
use heapprof_text::push_whole;
use heapprof_totals::fetch::fetch;

/// Valgrind's name for an unknown file. An empty name would mean the file of the caller.
const UNKNOWN_FILE_NAME: &str = "???";

/// Name of the function with which all stacks begin.
const ROOT_FUNCTION: &str = "(root)";

/// Writes a record for each function, line and address, with its calls. Fails if a value is
/// negative, because the format has no negative values.
pub fn callgrind(profile: &Profile, mut writer: impl Write) -> Result<(), DropinError> {
    let width = profile.sample_type.len();
    let samples = &profile.samples;
    let mut no_stack = vec![0i64; width];
    let mut total = vec![0i64; width];
    let graph = CallGraph::new(
        profile,
        &GraphOptions {
            columns: (0..width).collect(),
            mean_divisor: None,
            call_tree: false,
            drop_negative: false,
            objects: true,
            trim: PathTrimmer::new("", ""),
            picture: None,
            sort_by_cum: false,
            node_count: 0,
            node_fraction: 0.0,
            edge_fraction: 0.0,
            calls: CallSelection::Outermost,
            wrapping: false,
        },
    )?;
    // The call graph has already made sure that these sums fit.
    for i in 0..samples.len() {
        for (column, &value) in samples.values(i).iter().enumerate() {
            if value < 0 {
                return Err(DropinError::NegativeValue);
            }
            total[column] += value;
            if samples.stack(i).is_empty() {
                no_stack[column] += value;
            }
        }
    }
    head(profile, &mut writer)?;
    writeln!(writer, "summary: {}", costs(&total))?;
    Ok(CallgrindRecords::default().write(&graph, &no_stack, &mut writer)?)
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

/// State of the writer: the names and calls that were written.
#[derive(Default)]
struct CallgrindRecords {
    objects: NameNumbers,
    files: NameNumbers,
    functions: NameNumbers,
    /// Text of the lines that begin a call, for each node that was called before. The lines are
    /// copied for the next call of the node. The lines of all nodes are stored one after another.
    again: String,
    /// Range of each node's lines in `again`.
    at: Vec<(usize, usize)>,
    text: String,
}

impl CallgrindRecords {
    fn write(
        mut self,
        graph: &CallGraph<'_>,
        no_stack: &[i64],
        writer: &mut impl Write,
    ) -> std::io::Result<()> {
        self.at = vec![(0, 0); graph.nodes()];
        let nothing = costs(&vec![0; no_stack.len()]);
        let has_empty = no_stack.iter().any(|&value| value != 0);
        if has_empty {
            writeln!(writer)?;
            self.function(["", "", EMPTY_STACK], "", writer)?;
            writeln!(writer, "0x0 0 {}", costs(no_stack))?;
        }
        writeln!(writer)?;
        self.function(["", "", ROOT_FUNCTION], "", writer)?;
        writeln!(writer, "0x0 0 {nothing}")?;
        if has_empty {
            self.function(["", "", EMPTY_STACK], "c", writer)?;
            writeln!(writer, "calls=1 0x0 0\n0x0 0 {}", costs(no_stack))?;
        }
        for &node in graph.shown() {
            let weights = graph.root_weights(node);
            if weights.iter().any(|&value| value != 0) {
                self.call(graph, node, "0x0 0", weights, writer)?;
            }
        }
        let mut before = None;
        for &node in graph.shown() {
            let info = graph.info(node);
            let function = Some((info.object, info.file, name(&info)));
            if before != function {
                writeln!(writer)?;
                self.function([info.object, info.file, &name(&info)], "", writer)?;
            }
            before = function;
            let place = format!("{:#x} {}", info.address, line(&info));
            writeln!(writer, "{place} {}", costs(graph.flats(node)))?;
            self.fetch(graph, node);
            for edge in graph.callees(node) {
                self.call(graph, edge.callee, &place, graph.weights(edge), writer)?;
            }
        }
        Ok(())
    }

    /// Writes the binary, file and name of a function. The parameter `c` is written before each
    /// line. It is the letter `c` for a callee, and empty otherwise.
    fn function(
        &mut self,
        [object, file, name]: [&str; 3],
        c: &str,
        writer: &mut impl Write,
    ) -> std::io::Result<()> {
        writeln!(
            writer,
            "{c}ob={}",
            self.objects.name(&name_or_unknown(object))
        )?;
        writeln!(writer, "{c}fl={}", self.files.name(&name_or_unknown(file)))?;
        writeln!(writer, "{c}fn={}", self.functions.name(name))
    }

    /// [Prefetches](fetch) the data for the calls of a node into the processor's cache.
    fn fetch(&self, graph: &CallGraph<'_>, node: u32) {
        let again = self.again.as_bytes();
        fetch(graph.callees(node).map(|edge| {
            let text = again.get(self.at[edge.callee as usize].0);
            graph.weight(edge) as u8 ^ text.copied().unwrap_or_default()
        }));
    }

    /// Writes a call of `callee` from the position `place` in the caller. The call count is always
    /// 1, because a profile does not count calls.
    fn call(
        &mut self,
        graph: &CallGraph<'_>,
        callee: u32,
        place: &str,
        weights: &[i64],
        writer: &mut impl Write,
    ) -> std::io::Result<()> {
        let (start, end) = self.at[callee as usize];
        if end > 0 {
            writer.write_all(&self.again.as_bytes()[start..end])?;
        } else {
            let info = graph.info(callee);
            let name = name(&info);
            let [object, file] = [info.object, info.file].map(name_or_unknown);
            self.function([info.object, info.file, &name], "c", writer)?;
            let calls = format!("calls=1 {:#x} {}\n", info.address, line(&info));
            writer.write_all(calls.as_bytes())?;
            // From here on, each name is written as its number.
            let start = self.again.len();
            self.again.extend([
                "cob=",
                &self.objects.name(&object),
                "\ncfl=",
                &self.files.name(&file),
                "\ncfn=",
                &self.functions.name(&name),
                "\n",
                &calls,
            ]);
            self.at[callee as usize] = (start, self.again.len());
        }
        let text = &mut self.text;
        text.clear();
        text.push_str(place);
        for &weight in weights {
            text.push(' ');
            push_whole(i128::from(weight), text);
        }
        text.push('\n');
        writer.write_all(text.as_bytes())
    }
}

fn costs(values: &[i64]) -> String {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    values.join(" ")
}

/// Returns a node's line number, or 0 if it is negative, which the format forbids.
fn line(info: &NodeInfo<'_>) -> i64 {
    info.line.max(0)
}

/// Returns the name of a frame as heapprof's own reports show it.
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
/// Returns a printable form of a name, on one line; [`UNKNOWN_FILE_NAME`] for an empty name.
fn name_or_unknown(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        UNKNOWN_FILE_NAME.into()
    } else {
        printable(name)
    }
}
