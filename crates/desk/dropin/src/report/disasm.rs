//! `-disasm`: the instructions of matching functions, with the value of each instruction.
//!
//! pprof converts the addresses of its nodes in random order, and fails if the first one is outside
//! the mapping of the file. This code begins with an address inside. Source: google/pprof,
//! internal/report/report.go.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::rc::Rc;

use crate::graph::{CallGraph, NodeInfo, base, mean};
use heapprof_profile::Profile;

use super::measurement::percentage;
use super::object::{
    Instruction, ObjectFile, ObjectMapping, ObjectProblem, ObjectSymbol, ObjectTool, SymbolQuery,
    parse_address,
};
use super::options::PprofReportOptions;
use super::weblist::ListingOrder;
use super::{GraphPurpose, graph};
use crate::error::DropinError;

/// Length in bytes from which an instruction has a line of its own, after that of its place.
const LONG_INSTRUCTION: usize = 40;

/// Maximum number of mappings whose files are opened.
const MAX_MAPPINGS: usize = 1000;

/// Prints the functions whose name matches [`PprofReportOptions::symbol`]. If that is an address,
/// also prints the functions there. `report_problem` gets the problems with object files.
pub fn disasm(
    profile: &Profile,
    options: &PprofReportOptions,
    order: ListingOrder,
    tool: &dyn ObjectTool,
    report_problem: &dyn Fn(ObjectProblem),
    out: &mut dyn Write,
) -> Result<(), DropinError> {
    let Some(pattern) = options.symbol.clone() else {
        return Err(DropinError::NoSymbol(String::new()));
    };
    let text = pattern.to_string();
    let address = parse_address(&text);
    let graph = graph(profile, options, GraphPurpose::List)?;
    let values = options.values();
    let query = SymbolQuery {
        pattern,
        address: address.unwrap_or(0),
    };
    let found = find_symbols(profile, &graph, &query, address, tool, report_problem);
    let mut shown: Vec<SampledSymbol<'_>> = found
        .iter()
        .flat_map(|file| file.symbols.iter().map(move |symbol| (file, symbol)))
        .map(|(file, symbol)| SampledSymbol::new(file, symbol))
        .filter(|symbol| !symbol.nodes.is_empty())
        .collect();
    if shown.is_empty() {
        return Err(match address {
            None => DropinError::NoSymbol(text),
            Some(address) if found.iter().all(|file| file.symbols.is_empty()) => {
                DropinError::NoSymbolAt(address)
            }
            Some(address) => DropinError::NoSamplesAt(address),
        });
    }
    shown.sort_by(
        |SampledSymbol { symbol: a, .. }, SampledSymbol { symbol: b, .. }| {
            let names = a.names.first().cmp(&b.names.first());
            names.then(a.start.cmp(&b.start))
        },
    );
    if let ListingOrder::Largest(count) = order {
        shown.sort_by_key(|one| Reverse(one.sums(&graph).0));
        shown.truncate(count);
    }
    // Nothing is printed if the disassembler fails.
    let mut text = format!("Total: {}\n", values.show(options.total)).into_bytes();
    for one in shown {
        let range = one.symbol.start..one.symbol.end;
        let instructions = tool
            .disassemble(one.file, range, options.intel_syntax)
            .map_err(DropinError::ObjectTool)?;
        write_symbol(&one, &instructions, &graph, options, &mut text)?;
    }
    Ok(out.write_all(&text)?)
}

/// The symbols that were found in an object file, and the nodes that may be in them.
struct SearchedFile<'a> {
    name: &'a str,
    /// The symbols, which all mappings of the file share.
    symbols: Rc<[ObjectSymbol]>,
    /// The nodes with their addresses in the object file, in ascending order.
    nodes: Vec<(u64, u32)>,
}

/// Finds the symbols in the files of all mappings that have matching nodes or hold the address.
fn find_symbols<'a>(
    profile: &'a Profile,
    graph: &CallGraph<'_>,
    query: &SymbolQuery,
    address: Option<u64>,
    tool: &dyn ObjectTool,
    report_problem: &dyn Fn(ObjectProblem),
) -> Vec<SearchedFile<'a>> {
    let nodes = graph.shown().iter();
    let matching = nodes.filter(|&&node| query.pattern.is_match(graph.name(node)));
    let matching: HashSet<&str> = matching.map(|&node| graph.info(node).object).collect();
    let mut found = Vec::new();
    let mut known: HashMap<&str, Rc<[ObjectSymbol]>> = HashMap::new();
    let mut opened = 0;
    for mapping in &profile.mapping {
        let name = profile.text(mapping.filename);
        let range = mapping.memory_start..=mapping.memory_limit;
        let is_wanted = !name.is_empty() && matching.contains(name)
            || address.is_some_and(|address| range.contains(&address));
        if !is_wanted {
            continue;
        }
        opened += 1;
        if opened > MAX_MAPPINGS {
            report_problem(ObjectProblem::NoSymbols(format!(
                "more than {MAX_MAPPINGS} mappings match, heapprof's limit; the others are left out"
            )));
            break;
        }
        let place = ObjectMapping {
            start: mapping.memory_start,
            limit: mapping.memory_limit,
            offset: mapping.file_offset,
        };
        let object = match tool.open(name, place) {
            Ok(object) => object,
            Err(why) => {
                report_problem(ObjectProblem::NotOpened(why));
                continue;
            }
        };
        let symbols = match known.get(name) {
            Some(symbols) => Rc::clone(symbols),
            None => match object.symbols(query) {
                Ok(symbols) => Rc::clone(known.entry(name).or_insert(symbols.into())),
                Err(why) => {
                    report_problem(ObjectProblem::NoSymbols(why));
                    continue;
                }
            },
        };
        found.push(SearchedFile {
            name,
            symbols,
            nodes: place_nodes(graph, object.as_ref(), place),
        });
    }
    found
}

/// Returns all nodes with their addresses in the object file, in ascending order. The result is
/// empty if no node is in the mapping.
fn place_nodes(
    graph: &CallGraph<'_>,
    object: &dyn ObjectFile,
    mapping: ObjectMapping,
) -> Vec<(u64, u32)> {
    let inside = |address: &u64| (mapping.start..mapping.limit).contains(address);
    let mut addresses = graph.shown().iter().map(|&node| graph.info(node).address);
    if addresses
        .find(inside)
        .is_none_or(|first| object.object_address(first).is_err())
    {
        return Vec::new();
    }
    let place = |&node: &u32| {
        let address = object.object_address(graph.info(node).address).ok()?;
        Some((address, node))
    };
    let mut nodes: Vec<(u64, u32)> = graph.shown().iter().filter_map(place).collect();
    nodes.sort_by(|(a, first), (b, second)| {
        let printed = |node: u32| as_go_prints(&graph.info(node));
        a.cmp(b)
            .then_with(|| printed(*first).cmp(&printed(*second)))
    });
    nodes
}

/// A symbol with the nodes in its range.
struct SampledSymbol<'a> {
    file: &'a str,
    symbol: &'a ObjectSymbol,
    nodes: &'a [(u64, u32)],
}

impl<'a> SampledSymbol<'a> {
    fn new(file: &'a SearchedFile<'a>, symbol: &'a ObjectSymbol) -> Self {
        let before = |end: u64| file.nodes.partition_point(|&(address, _)| address < end);
        let range = before(symbol.start)..before(symbol.end);
        Self {
            file: file.name,
            symbol,
            nodes: file.nodes.get(range).unwrap_or_default(),
        }
    }

    /// Returns the sums of flat and of cum.
    fn sums(&self, graph: &CallGraph<'_>) -> (i64, i64) {
        let (mut flat, mut cum) = ((0, 0), (0, 0));
        for &(_, node) in self.nodes {
            add(&mut flat, graph.flats(node), false);
            add(&mut cum, graph.cums(node), false);
        }
        (flat.0, cum.0)
    }
}

/// Returns a node as Go prints its structure. pprof compares these texts.
fn as_go_prints(info: &NodeInfo<'_>) -> String {
    let NodeInfo {
        name,
        address,
        file,
        start_line,
        line,
        column,
        object,
    } = info;
    format!("{{{name}  {address} {file} {start_line} {line} {column} {object}}}")
}

/// An instruction with its values and its place.
#[derive(Default)]
struct AnnotatedInstruction<'a> {
    function: &'a str,
    file: &'a str,
    line: i64,
    flat: (i64, i64),
    cum: (i64, i64),
}

/// Adds a value and its divisor to a sum.
fn add(sum: &mut (i64, i64), values: &[i64], has_divisor: bool) {
    let divisor = if has_divisor { values.last() } else { None };
    sum.0 = sum.0.wrapping_add(values.first().copied().unwrap_or(0));
    sum.1 = sum.1.wrapping_add(divisor.copied().unwrap_or(0));
}

fn write_symbol(
    one: &SampledSymbol<'_>,
    instructions: &[Instruction],
    graph: &CallGraph<'_>,
    options: &PprofReportOptions,
    out: &mut dyn Write,
) -> Result<(), DropinError> {
    let values = options.values();
    let has_divisor = options.mean_divisor.is_some();
    let (flat, cum) = one.sums(graph);
    for (at, name) in one.symbol.names.iter().enumerate() {
        let title = if at == 0 { "ROUTINE" } else { "    AKA" };
        writeln!(out, "{title} ======================== {name}")?;
    }
    writeln!(
        out,
        "{:>10} {:>10} (flat, cum) {} of Total",
        values.show(flat),
        values.show(cum),
        percentage(cum, options.total)
    )?;
    let mut nodes = one.nodes.iter().peekable();
    let mut place = ("", "", 0);
    for (at, instruction) in instructions.iter().enumerate() {
        let mut listed = AnnotatedInstruction {
            function: &instruction.function,
            file: base_or_empty(&instruction.file),
            line: instruction.line,
            ..AnnotatedInstruction::default()
        };
        // A sample in the middle of an instruction belongs to that instruction.
        let next = instructions.get(at + 1).map_or(u64::MAX, |i| i.address);
        while let Some(&(_, node)) = nodes.next_if(|(address, _)| *address < next) {
            add(&mut listed.flat, graph.flats(node), has_divisor);
            add(&mut listed.cum, graph.cums(node), has_divisor);
            let found = profile_place(graph, node);
            let (function, file, line) = found;
            if listed.file.is_empty() {
                listed.file = base_or_empty(file);
            }
            if listed.line == 0 {
                listed.line = line;
            }
            if listed.function.is_empty() {
                listed.function = function;
            }
        }
        let new_place = (listed.function, listed.file, listed.line);
        let text = match new_place == place {
            true => String::new(),
            false => place_text(new_place),
        };
        place = new_place;
        write_instruction(instruction, &listed, &text, options, out)?;
    }
    Ok(())
}

fn profile_place<'a>(graph: &'a CallGraph<'_>, node: u32) -> (&'a str, &'a str, i64) {
    let info = graph.info(node);
    (info.name, info.file, info.line)
}

fn base_or_empty(file: &str) -> &str {
    match file {
        "" => "",
        file => base(file),
    }
}

/// Returns function, file and line as one text; empty if none is known.
fn place_text((function, file, line): (&str, &str, i64)) -> String {
    let mut text = String::new();
    if !function.is_empty() {
        text = format!("{function} ");
    }
    if !file.is_empty() {
        text += file;
        if line != 0 {
            text += &format!(":{line}");
        }
    }
    text
}

fn write_instruction(
    instruction: &Instruction,
    listed: &AnnotatedInstruction<'_>,
    place: &str,
    options: &PprofReportOptions,
    out: &mut dyn Write,
) -> Result<(), DropinError> {
    let values = options.values();
    let show = |(sum, divisor)| match mean(sum, divisor) {
        0 => ".".to_string(),
        value => values.show(value),
    };
    let (flat, cum) = (show(listed.flat), show(listed.cum));
    let Instruction { address, text, .. } = instruction;
    let row = format!("{flat:>10} {cum:>10} {address:>10x}: ");
    if place.is_empty() {
        writeln!(out, "{row}{text}")?;
    } else if text.len() < LONG_INSTRUCTION {
        writeln!(out, "{row}{text:<40};{place}")?;
    } else {
        writeln!(out, "{:74};{place}", "")?;
        writeln!(out, "{row}{text}")?;
    }
    Ok(())
}
