//! The rows of a report in the form that the page needs: one call tree, with values for each
//! snapshot.

use std::collections::BTreeMap;

/// Everything that a page shows. Rows refer to rows of other lists by their indices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebReport {
    /// The name of the program, for the heading.
    pub program: String,
    /// The tool that wrote the report, with its version.
    pub tool: String,
    /// The sampling period of the last snapshot: 1 means exact, 0 unknown.
    pub period: i64,
    /// The sample types. A list of values has one entry or one column for each type.
    pub types: Vec<PageSampleType>,
    /// The name of the type that is shown first.
    pub default_type: String,
    /// The index of the snapshot with which the page first compares the last snapshot; `None` for
    /// no comparison.
    pub base: Option<usize>,
    /// Whether the page, when it opens, counts the memory of libraries for the nearest caller in
    /// the program's own code.
    pub own_code: bool,
    /// The snapshots of the process, in order of time. There is at least one.
    pub snapshots: Vec<PageSnapshot>,
    /// The functions. Sort them by name and file, so that equal input gives equal bytes.
    pub functions: Vec<PageFunction>,
    /// The names of source files. An empty name stands for an unknown file.
    pub files: Vec<String>,
    /// The modules (crates, packages, libraries) that functions belong to.
    pub modules: Vec<PageModule>,
    /// The names of mapped files (executables, shared libraries). Filters match these, too.
    pub mapped: Vec<String>,
    /// Functions with lines. Several nodes may share a frame.
    pub frames: Vec<PageFrame>,
    /// The call tree in pre-order: the descendants of a node come directly after the node.
    pub nodes: Vec<PageNode>,
    /// The nodes that are too small for the tree, summed up.
    pub left_out: OmittedNodes,
    /// Histograms of the sizes of allocations in the whole process.
    pub sizes: Option<PageSizeHistograms>,
    /// The values of the last snapshot by node and by recorded size.
    pub size_rows: Option<SizeRows>,
    /// The size of the heap and of the process over time. Only for a report with one snapshot.
    pub history: Option<HistoryCurve>,
    /// The largest heap recorded in any snapshot. Only for a report with several snapshots.
    pub peak: Option<PageSeriesPeak>,
    /// The growth of functions over the snapshots, by the name of the sample type.
    pub growth: BTreeMap<String, Vec<PageGrowth>>,
    /// Whether [`WebReport::growth`] is for functions in the program's own code. If it is `None`,
    /// [`WebReport::own_code`] applies.
    pub growth_own_code: Option<bool>,
    /// SQL statements by view: `flame`, `table`, `table.diff`, `pivot` and so on.
    pub sql: BTreeMap<String, String>,
    /// Command lines by view, with the view names of [`WebReport::sql`].
    pub commands: BTreeMap<String, String>,
    /// Source text, by file and by the number of its first line.
    pub source: BTreeMap<u32, BTreeMap<u32, String>>,
    /// The possible error of each type's total as a share of the total, by the name of the type.
    pub estimates: BTreeMap<String, f64>,
    /// How the page folds Python's imports while it shows own code; `None` if there are none.
    pub imports: Option<PageImports>,
    /// The results of an audit of forked children, in the form of
    /// `heapprof fork-audit --format json`.
    pub forks: Option<serde_json::Value>,
}

/// A sample type, named as in pprof: `inuse_space` in `bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSampleType {
    /// The name.
    pub name: String,
    /// The unit.
    pub unit: String,
}

/// A part of the resident memory of a process: the mappings of one kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagePeakPart {
    /// The kind of the mappings, such as `libraries`.
    pub kind: String,
    /// The file or the kernel's name of the mappings; empty if they have none.
    pub name: String,
    /// The resident bytes.
    pub bytes: i64,
}

/// A snapshot: one moment of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageSnapshot {
    /// The name of the snapshot, such as its file's name.
    pub name: String,
    /// The time in milliseconds since 1970; 0 if unknown.
    pub time_ms: i64,
    /// Milliseconds since the first snapshot.
    pub since_ms: f64,
    /// The sampling period: 1 means exact, 0 unknown.
    pub period: i64,
    /// The resident set in bytes.
    pub rss: Option<i64>,
    /// The largest resident set so far, in bytes.
    pub peak_rss: Option<i64>,
    /// The parts of the largest resident set; empty if they are unknown.
    pub peak_parts: Vec<PagePeakPart>,
    /// The total of each type. Percentages are shares of this total.
    pub total: Vec<i64>,
    /// The possible error of each type's total, as a share of the total; `None` for exact totals.
    /// The list is empty if all totals are exact.
    pub errors: Vec<Option<f64>>,
    /// The indices of the nodes that have values, ascending.
    pub nodes: Vec<u32>,
    /// A column of values for each type, with one value for each entry of `nodes`: the node's own
    /// value, without its children.
    pub values: Vec<Vec<i64>>,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageFunction {
    /// The full name. `(other)` stands for functions that were left out.
    pub name: String,
    /// Index of the function's file in [`WebReport::files`].
    pub file: u32,
    /// Index of the function's module in [`WebReport::modules`].
    pub module: u32,
    /// Index of the function's mapped file in [`WebReport::mapped`].
    pub mapped: Option<u32>,
    /// The line where the function begins; 0 if unknown.
    pub start_line: i64,
}

/// A module. All functions of a module have the same colour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageModule {
    /// The name.
    pub name: String,
    /// Whether the module is a library. Otherwise it is the program's own code.
    pub is_library: bool,
}

/// A function with a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFrame {
    /// Index of the function in [`WebReport::functions`].
    pub function: u32,
    /// The line; 0 if unknown.
    pub line: i64,
}

/// A node of the call tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageNode {
    /// Index of the caller's node; `None` for a root.
    pub parent: Option<u32>,
    /// Index of the frame in [`WebReport::frames`].
    pub frame: u32,
}

/// The nodes that were too small for the tree, and were merged into nodes named `(other)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmittedNodes {
    /// The number of merged nodes.
    pub nodes: u64,
    /// The sum of each type over the merged nodes. It may be empty if no node was merged.
    pub values: Vec<i64>,
}

/// What the page needs to fold Python's imports: the frames of importlib that lead to a module are
/// shown as one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageImports {
    /// Indices of the functions of importlib.
    pub machinery: Vec<u32>,
    /// For each frame of a module that importlib runs: its index, the index of the frame that
    /// stands for the import if it is the outermost one of a stack, and the index of the frame that
    /// stands for the import inside another one.
    pub modules: Vec<[u32; 3]>,
}

/// Histograms of allocation sizes. Entry `k` counts allocations of at least 2^k and less than
/// 2^(k+1) bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSizeHistograms {
    /// Counts of blocks in use now.
    pub inuse: Option<Vec<i64>>,
    /// Counts of all allocations so far.
    pub alloc: Option<Vec<i64>>,
    /// Whether the collector counted every allocation.
    pub is_exact: bool,
}

/// Values by node and size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeRows {
    /// The indices of the nodes, ascending. A node has one row for each of its sizes.
    pub nodes: Vec<u32>,
    /// The upper limit of each row's size, as the exponent of a power of two; at most 63.
    pub log2: Vec<u8>,
    /// A column of values for each type.
    pub values: Vec<Vec<i64>>,
}

/// A curve of the whole process over time. All lists have the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryCurve {
    /// Milliseconds since the start.
    pub time_ms: Vec<f64>,
    /// Bytes in use.
    pub inuse: Vec<i64>,
    /// Objects in use.
    pub objects: Option<Vec<i64>>,
    /// The resident set in bytes, where it is known.
    pub rss: Option<Vec<Option<i64>>>,
    /// The moment when the most bytes were in use.
    pub peak: Option<HistoryPeak>,
}

/// The moment of a curve when the most bytes were in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HistoryPeak {
    /// Milliseconds since the start.
    pub time_ms: f64,
    /// Bytes in use.
    pub bytes: i64,
}

/// The largest heap of several snapshots. It mostly occurred between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageSeriesPeak {
    /// Bytes in use.
    pub bytes: i64,
    /// Milliseconds since the first snapshot; negative if the largest heap was before it, `None` if
    /// unknown.
    pub since_ms: Option<f64>,
}

/// The growth of a function over the snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct PageGrowth {
    /// Index of the function in [`WebReport::functions`].
    pub function: u32,
    /// The verdict on the growth, as text. The page has signs and an order for "steady growth",
    /// "grows in steps", "levels off", "burst, freed" and "no trend". Any other text is shown last.
    pub verdict: &'static str,
    /// The slope of a straight line through the values, per hour.
    pub slope: f64,
    /// The coefficient of determination of the straight line, from 0 to 1: how well the line fits
    /// the values.
    pub r2: f64,
    /// The number of steps between snapshots in which the value grew.
    pub grew: u64,
    /// The number of steps between snapshots.
    pub steps: u64,
    /// The value in the first snapshot.
    pub first: i64,
    /// The value in the last snapshot.
    pub last: i64,
    /// The largest value.
    pub max: i64,
}
