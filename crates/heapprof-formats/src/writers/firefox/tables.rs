//! The tables that stacks are made of: texts, sources, functions, frames, and a tree of stacks.

use std::io::Write;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{FunctionIndex, Profile};
use serde_json::{Value, json};

use super::super::WriteError;

/// A resource of this type is a library.
const LIBRARY: u32 = 1;

/// The tables of a profile.
pub(super) struct Tables {
    text: Vec<String>,
    text_index: HashMap<String, u32>,
    /// Texts of file names.
    source: Vec<u32>,
    function: Vec<Function>,
    frame: Vec<Frame>,
    /// Frame and prefix of each stack.
    stack: Vec<(u32, Option<u32>)>,
    /// The stack of each sample; none for an empty one.
    of_sample: Vec<Option<u32>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Function {
    name: u32,
    source: Option<u32>,
    start_line: i64,
    /// The mapping it is in.
    library: Option<u32>,
}

struct Frame {
    function: u32,
    /// 0 for the function that others were inlined into.
    inline_depth: usize,
    line: i64,
    column: i64,
}

impl Tables {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut tables = Self {
            text: Vec::new(),
            text_index: HashMap::new(),
            source: Vec::new(),
            function: Vec::new(),
            frame: Vec::new(),
            stack: Vec::new(),
            of_sample: Vec::new(),
        };
        let ends = tables.frames(profile);
        let mut known: HashMap<(Option<u32>, u32), u32> = HashMap::new();
        for sample in 0..profile.samples.len() {
            let mut stack = None;
            for location in profile.samples.stack(sample).iter().rev() {
                let end = ends[location.index()];
                let start = location
                    .index()
                    .checked_sub(1)
                    .map_or(0, |before| ends[before]);
                for frame in start..end {
                    let frame = frame as u32;
                    let all = &mut tables.stack;
                    let number = *known.entry((stack, frame)).or_insert_with(|| {
                        all.push((frame, stack));
                        all.len() as u32 - 1
                    });
                    stack = Some(number);
                }
            }
            tables.of_sample.push(stack);
        }
        tables
    }

    /// Makes the frames of all locations, outermost first, and says where those of each end.
    fn frames(&mut self, profile: &Profile) -> Vec<usize> {
        let mut functions: HashMap<Function, u32> = HashMap::new();
        let mut sources: HashMap<u32, u32> = HashMap::new();
        let mut ends = Vec::new();
        for location in &profile.location {
            let lines = profile.lines(location);
            let library = location.mapping.map(|mapping| mapping.0);
            let unnamed = lines.is_empty().then(|| {
                let name = self.text(&profile.address_name(location));
                let function = Function {
                    name,
                    source: None,
                    start_line: 0,
                    library,
                };
                (function, 0, 0)
            });
            let mut named = Vec::new();
            for line in lines.iter().rev() {
                let FunctionIndex(at) = line.function;
                let function = &profile.function[at as usize];
                let name = self.text(profile.text(function.name));
                let source = (!function.filename.is_empty()).then(|| {
                    let file = self.text(profile.text(function.filename));
                    let source = &mut self.source;
                    *sources.entry(file).or_insert_with(|| {
                        source.push(file);
                        source.len() as u32 - 1
                    })
                });
                let function = Function {
                    name,
                    source,
                    start_line: function.start_line,
                    library,
                };
                named.push((function, line.line, line.column));
            }
            for (inline_depth, (function, line, column)) in
                named.into_iter().chain(unnamed).enumerate()
            {
                let all = &mut self.function;
                let number = *functions.entry(function).or_insert_with(|| {
                    all.push(function);
                    all.len() as u32 - 1
                });
                self.frame.push(Frame {
                    function: number,
                    inline_depth,
                    line,
                    column,
                });
            }
            ends.push(self.frame.len());
        }
        for mapping in &profile.mapping {
            self.text(base_name(profile.text(mapping.filename)));
        }
        ends
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.text_index.get(text) {
            return known;
        }
        self.text.push(text.to_string());
        let number = self.text.len() as u32 - 1;
        self.text_index.insert(text.to_string(), number);
        number
    }

    /// The stack of a sample.
    pub(super) fn stack_of(&self, sample: usize) -> Option<u32> {
        self.of_sample.get(sample).copied().flatten()
    }

    pub(super) fn write(
        &self,
        profile: &Profile,
        writer: &mut impl Write,
    ) -> Result<(), WriteError> {
        let known = |number: i64| {
            if number == 0 {
                Value::Null
            } else {
                number.into()
            }
        };
        let nulls = |n: usize| vec![Value::Null; n];
        let column = |values: &mut dyn Iterator<Item = Value>| Value::Array(values.collect());
        let (functions, frames, stacks) = (&self.function, &self.frame, &self.stack);
        let name = |path: &str| self.text_index.get(base_name(path)).copied();
        let paths = || profile.mapping.iter().map(|m| profile.text(m.filename));
        let tables = [
            (
                "stackTable",
                json!({
                    "frame": column(&mut stacks.iter().map(|s| s.0.into())),
                    "prefix": column(&mut stacks.iter().map(|s| s.1.into())),
                    "length": stacks.len(),
                }),
            ),
            (
                "frameTable",
                json!({
                    "address": column(&mut frames.iter().map(|_| (-1).into())),
                    "inlineDepth": column(&mut frames.iter().map(|f| f.inline_depth.into())),
                    "category": column(&mut frames.iter().map(|_| 0.into())),
                    "subcategory": column(&mut frames.iter().map(|_| 0.into())),
                    "func": column(&mut frames.iter().map(|f| f.function.into())),
                    "nativeSymbol": nulls(frames.len()),
                    "innerWindowID": nulls(frames.len()),
                    "line": column(&mut frames.iter().map(|f| known(f.line))),
                    "column": column(&mut frames.iter().map(|f| known(f.column))),
                    "length": frames.len(),
                }),
            ),
            (
                "funcTable",
                json!({
                    "name": column(&mut functions.iter().map(|f| f.name.into())),
                    "isJS": column(&mut functions.iter().map(|_| false.into())),
                    "relevantForJS": column(&mut functions.iter().map(|_| false.into())),
                    "resource": column(&mut functions.iter().map(|f| f.library.map_or((-1).into(), Value::from))),
                    "source": column(&mut functions.iter().map(|f| f.source.into())),
                    "lineNumber": column(&mut functions.iter().map(|f| known(f.start_line))),
                    "columnNumber": nulls(functions.len()),
                    "length": functions.len(),
                }),
            ),
            (
                "resourceTable",
                json!({
                    "lib": column(&mut (0..profile.mapping.len()).map(Value::from)),
                    "name": column(&mut paths().map(|path| name(path).into())),
                    "host": nulls(profile.mapping.len()),
                    "type": column(&mut paths().map(|_| LIBRARY.into())),
                    "length": profile.mapping.len(),
                }),
            ),
            (
                "nativeSymbols",
                json!({"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0}),
            ),
            (
                "sources",
                json!({
                    "uuid": nulls(self.source.len()),
                    "filename": self.source,
                    "length": self.source.len(),
                }),
            ),
            ("stringArray", json!(self.text)),
        ];
        for (i, (name, table)) in tables.iter().enumerate() {
            write!(writer, "{}\"{name}\":", if i == 0 { "{" } else { ",\n" })?;
            serde_json::to_writer(&mut *writer, table)?;
        }
        write!(writer, "}}")?;
        Ok(())
    }
}

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
