//! Tables that stacks consist of: texts, sources, functions, frames, and a tree of stacks.

use std::fmt::{Display, Formatter};
use std::io::Write;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{FunctionIndex, Profile};

use super::super::WriteError;

/// Number of the resource type for libraries.
const LIBRARY_RESOURCE: u32 = 1;

/// The tables of a profile.
pub(super) struct FirefoxTables {
    text: Vec<String>,
    text_index: HashMap<String, u32>,
    /// Index in `text` of the name of each source file.
    source: Vec<u32>,
    function: Vec<FirefoxFunction>,
    frame: Vec<FirefoxFrame>,
    /// Frame and prefix (the stack of the callers) of each stack. The prefix is [`NO_STACK`] for a
    /// root.
    stack: Vec<(u32, u32)>,
    /// The stack of each sample; [`NO_STACK`] for an empty one.
    of_sample: Vec<u32>,
}

const NO_STACK: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FirefoxFunction {
    name: u32,
    source: Option<u32>,
    start_line: i64,
    /// Index of the mapping that contains the function.
    library: Option<u32>,
}

struct FirefoxFrame {
    function: u32,
    /// Depth of inlining; 0 for a function that is not inlined.
    inline_depth: usize,
    line: i64,
    column: i64,
}

impl FirefoxTables {
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
        let frames = |location: usize| {
            let start = location.checked_sub(1).map_or(0, |before| ends[before]);
            start as u32..ends[location] as u32
        };
        // The tree of all stacks, with a node for each location. A node has its parent and its
        // location.
        let mut node: Vec<(u32, u32)> = Vec::new();
        let locations: Vec<i64> = (0..profile.location.len() as i64).collect();
        let leaf = profile
            .samples
            .number_stacks(&locations, |parent, location, _| {
                node.push((parent as u32, location as u32));
                Ok::<_, std::convert::Infallible>(node.len() as i64)
            });
        let Ok(leaf) = leaf;
        // Stacks are numbered in the order in which samples first have them. A node's number is the
        // number of the stack that ends with its last frame.
        let mut number = vec![NO_STACK; node.len()];
        let mut way = Vec::new();
        for leaf in leaf {
            let mut at = leaf as u32;
            while at != 0 && number[at as usize - 1] == NO_STACK {
                way.push(at);
                at = node[at as usize - 1].0;
            }
            let known = |node: u32| match node {
                0 => NO_STACK,
                node => number[node as usize - 1],
            };
            let mut stack = known(at);
            for at in way.drain(..).rev() {
                for frame in frames(node[at as usize - 1].1 as usize) {
                    tables.stack.push((frame, stack));
                    stack = tables.stack.len() as u32 - 1;
                }
                number[at as usize - 1] = stack;
            }
            tables.of_sample.push(stack);
        }
        tables
    }

    /// Makes the frames of all locations, outermost first. Returns the end of each location's
    /// frames.
    fn frames(&mut self, profile: &Profile) -> Vec<usize> {
        let mut functions: HashMap<FirefoxFunction, u32> = HashMap::new();
        let mut sources: HashMap<u32, u32> = HashMap::new();
        let mut ends = Vec::new();
        for location in &profile.location {
            let lines = profile.lines(location);
            let library = location.mapping.map(|mapping| mapping.0);
            let unnamed = lines.is_empty().then(|| {
                let name = self.text(&profile.address_name(location));
                let function = FirefoxFunction {
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
                let function = FirefoxFunction {
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
                self.frame.push(FirefoxFrame {
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

    /// Returns the stack of a sample; `None` for an empty one.
    pub(super) fn stack_of(&self, sample: usize) -> Option<u32> {
        let stack = self.of_sample.get(sample).copied();
        stack.filter(|&stack| stack != NO_STACK)
    }

    pub(super) fn write(
        &self,
        profile: &Profile,
        writer: &mut impl Write,
    ) -> Result<(), WriteError> {
        let (functions, frames) = (&self.function, &self.frame);
        let name =
            |path: &str| NullableNumber(self.text_index.get(base_name(path)).map(|&n| n.into()));
        let paths = || profile.mapping.iter().map(|m| profile.text(m.filename));
        let mut table = JsonTableWriter::new(writer);
        table.begin("stackTable")?;
        table.column("frame", self.stack.iter().map(|s| s.0.into()))?;
        table.column(
            "prefix",
            self.stack.iter().map(|s| match s.1 {
                NO_STACK => NullableNumber::NULL,
                prefix => prefix.into(),
            }),
        )?;
        table.end(self.stack.len())?;
        table.begin("frameTable")?;
        table.column("address", frames.iter().map(|_| NullableNumber(Some(-1))))?;
        table.column(
            "inlineDepth",
            frames.iter().map(|f| (f.inline_depth as i64).into()),
        )?;
        table.column("category", frames.iter().map(|_| NullableNumber(Some(0))))?;
        table.column(
            "subcategory",
            frames.iter().map(|_| NullableNumber(Some(0))),
        )?;
        table.column("func", frames.iter().map(|f| f.function.into()))?;
        table.column("nativeSymbol", frames.iter().map(|_| NullableNumber::NULL))?;
        table.column("innerWindowID", frames.iter().map(|_| NullableNumber::NULL))?;
        table.column(
            "line",
            frames.iter().map(|f| NullableNumber::from_nonzero(f.line)),
        )?;
        table.column(
            "column",
            frames
                .iter()
                .map(|f| NullableNumber::from_nonzero(f.column)),
        )?;
        table.end(frames.len())?;
        table.begin("funcTable")?;
        table.column("name", functions.iter().map(|f| f.name.into()))?;
        table.values("isJS", functions.iter().map(|_| false))?;
        table.values("relevantForJS", functions.iter().map(|_| false))?;
        table.column(
            "resource",
            functions.iter().map(|f| {
                f.library
                    .map_or(NullableNumber(Some(-1)), NullableNumber::from)
            }),
        )?;
        table.column(
            "source",
            functions
                .iter()
                .map(|f| NullableNumber(f.source.map(i64::from))),
        )?;
        table.column(
            "lineNumber",
            functions
                .iter()
                .map(|f| NullableNumber::from_nonzero(f.start_line)),
        )?;
        table.column(
            "columnNumber",
            functions.iter().map(|_| NullableNumber::NULL),
        )?;
        table.end(functions.len())?;
        table.begin("resourceTable")?;
        table.column(
            "lib",
            (0..profile.mapping.len() as i64).map(NullableNumber::from),
        )?;
        table.column("name", paths().map(name))?;
        table.column("host", paths().map(|_| NullableNumber::NULL))?;
        table.column("type", paths().map(|_| LIBRARY_RESOURCE.into()))?;
        table.end(profile.mapping.len())?;
        table.begin("nativeSymbols")?;
        for column in ["libIndex", "address", "name", "functionSize"] {
            table.column(column, std::iter::empty())?;
        }
        table.end(0)?;
        table.begin("sources")?;
        table.column("uuid", self.source.iter().map(|_| NullableNumber::NULL))?;
        table.column("filename", self.source.iter().map(|&text| text.into()))?;
        table.end(self.source.len())?;
        write!(writer, ",\n\"stringArray\":")?;
        serde_json::to_writer(&mut *writer, &self.text)?;
        write!(writer, "}}")?;
        Ok(())
    }
}

/// A number or null.
struct NullableNumber(Option<i64>);

impl NullableNumber {
    const NULL: Self = Self(None);

    /// Makes a nullable number from a value in which 0 means unknown.
    fn from_nonzero(number: i64) -> Self {
        Self((number != 0).then_some(number))
    }
}

impl From<i64> for NullableNumber {
    fn from(number: i64) -> Self {
        Self(Some(number))
    }
}

impl From<u32> for NullableNumber {
    fn from(number: u32) -> Self {
        Self(Some(number.into()))
    }
}

impl Display for NullableNumber {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// Writer of tables, column by column. Each column is computed only when it is written.
struct JsonTableWriter<'w, W> {
    writer: &'w mut W,
    /// The texts to write before the next table and before the next column.
    before: [&'static str; 2],
}

impl<'w, W: Write> JsonTableWriter<'w, W> {
    fn new(writer: &'w mut W) -> Self {
        Self {
            writer,
            before: ["{", ""],
        }
    }

    fn begin(&mut self, name: &str) -> std::io::Result<()> {
        write!(self.writer, "{}\"{name}\":{{", self.before[0])?;
        self.before = [",\n", ""];
        Ok(())
    }

    fn column(
        &mut self,
        name: &str,
        values: impl Iterator<Item = NullableNumber>,
    ) -> std::io::Result<()> {
        self.values(name, values)
    }

    fn values(
        &mut self,
        name: &str,
        values: impl Iterator<Item = impl Display>,
    ) -> std::io::Result<()> {
        write!(self.writer, "{}\"{name}\":[", self.before[1])?;
        self.before[1] = ",";
        let mut comma = "";
        for value in values {
            write!(self.writer, "{comma}{value}")?;
            comma = ",";
        }
        write!(self.writer, "]")
    }

    fn end(&mut self, length: usize) -> std::io::Result<()> {
        write!(self.writer, "{}\"length\":{length}}}", self.before[1])
    }
}

/// Returns the last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
