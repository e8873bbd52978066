//! The rows of a report, as the page needs them: one tree of calls, and values for each snapshot.

use std::collections::BTreeMap;

/// Everything that a page shows. Rows refer to each other by their places in these lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebReport {
    /// The program, for the heading.
    pub program: String,
    /// The tool that wrote the report, with its version.
    pub tool: String,
    /// The distance between two samples of the last snapshot: 1 means exact, 0 unknown.
    pub period: i64,
    /// The sample types. Every list of values has one entry or one column for each.
    pub types: Vec<PageSampleType>,
    /// The name of the type that is shown first.
    pub default_type: String,
    /// The snapshot that the last one is compared with at first.
    pub base: Option<usize>,
    /// Whether memory of libraries is first shown at the caller that is the program's own code.
    pub own_code: bool,
    /// The moments of the process, in order of time. There is at least one.
    pub snapshots: Vec<PageSnapshot>,
    /// The functions. Equal input gives equal bytes if they are sorted, by name and file.
    pub functions: Vec<PageFunction>,
    /// The names of source files. An empty name stands for an unknown file.
    pub files: Vec<String>,
    /// The modules (crates, packages, libraries) that functions belong to.
    pub modules: Vec<PageModule>,
    /// The names of mapped files (executables, shared libraries). Filters look into them too.
    pub mapped: Vec<String>,
    /// Functions with lines, each of which may stand in many nodes.
    pub frames: Vec<PageFrame>,
    /// The tree of calls in pre-order: the descendants of a node come directly after it.
    pub nodes: Vec<PageNode>,
    /// What the tree does not show in single nodes.
    pub left_out: OmittedNodes,
    /// The sizes of single allocations in the whole process.
    pub sizes: Option<PageSizeHistograms>,
    /// The sizes that samples of the last snapshot carry.
    pub size_rows: Option<SizeRows>,
    /// What the heap and the process held over time, if there is one snapshot.
    pub history: Option<HistoryCurve>,
    /// The largest heap that any of several snapshots names.
    pub peak: Option<PageSeriesPeak>,
    /// How functions grow over the snapshots, by the name of the sample type.
    pub growth: BTreeMap<String, Vec<PageGrowth>>,
    /// Whether [`WebReport::growth`] is of own code. If it is not given, it is so if `own_code` is.
    pub growth_own_code: Option<bool>,
    /// SQL statements by view: `flame`, `table`, `table.diff`, `pivot` and so on.
    pub sql: BTreeMap<String, String>,
    /// Command lines by view, with the same names.
    pub commands: BTreeMap<String, String>,
    /// Source text, by file and by the number of its first line.
    pub source: BTreeMap<u32, BTreeMap<u32, String>>,
    /// How far off a type's total may be, as a share of it, by the name of the type.
    pub estimates: BTreeMap<String, f64>,
    /// What an audit of forked children noted, as `heapprof fork-audit --format json` says it.
    pub forks: Option<serde_json::Value>,
}

/// A sample type, in pprof's words: `inuse_space` in `bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSampleType {
    /// The name.
    pub name: String,
    /// The unit.
    pub unit: String,
}

/// One moment of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageSnapshot {
    /// The name, such as that of a file.
    pub name: String,
    /// The time in milliseconds since 1970; 0 is unknown.
    pub time_ms: i64,
    /// The milliseconds since the first snapshot.
    pub since_ms: f64,
    /// The distance between two samples: 1 means exact, 0 unknown.
    pub period: i64,
    /// The resident set in bytes.
    pub rss: Option<i64>,
    /// The largest resident set so far, in bytes.
    pub peak_rss: Option<i64>,
    /// The whole of each type, which shares are of.
    pub total: Vec<i64>,
    /// The nodes that have values, ascending.
    pub nodes: Vec<u32>,
    /// A column of values for each type, with one value for each of `nodes`: what the node has
    /// itself, without its children.
    pub values: Vec<Vec<i64>>,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageFunction {
    /// The whole name. `(other)` stands for what was left out.
    pub name: String,
    /// Its file, in [`WebReport::files`].
    pub file: u32,
    /// Its module, in [`WebReport::modules`].
    pub module: u32,
    /// Its mapped file, in [`WebReport::mapped`].
    pub mapped: Option<u32>,
    /// The line where it begins; 0 is unknown.
    pub start_line: i64,
}

/// A module, whose functions have one colour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageModule {
    /// The name.
    pub name: String,
    /// Whether it is a library's, and not the program's own code.
    pub is_library: bool,
}

/// A function with a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFrame {
    /// The function, in [`WebReport::functions`].
    pub function: u32,
    /// The line; 0 is unknown.
    pub line: i64,
}

/// A node of the tree of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageNode {
    /// The caller's node. Roots have none.
    pub parent: Option<u32>,
    /// The frame, in [`WebReport::frames`].
    pub frame: u32,
}

/// What was too small for the tree and is in nodes named `(other)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmittedNodes {
    /// How many nodes.
    pub nodes: u64,
    /// How much of each type. It may be empty if nothing was left out.
    pub values: Vec<i64>,
}

/// Histograms of sizes. Entry `k` counts allocations of 2^k bytes and up to the next power.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSizeHistograms {
    /// What is held now.
    pub inuse: Option<Vec<i64>>,
    /// What was allocated in all.
    pub alloc: Option<Vec<i64>>,
    /// Whether the collector counted one by one.
    pub is_exact: bool,
}

/// Values by node and size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeRows {
    /// The nodes, ascending; a node has one row for each of its sizes.
    pub nodes: Vec<u32>,
    /// The power of two that each row's size is at most; 63 is the largest.
    pub log2: Vec<u8>,
    /// A column of values for each type.
    pub values: Vec<Vec<i64>>,
}

/// A curve of the whole process. All lists have the same length.
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
    /// The moment when most was in use.
    pub peak: Option<HistoryPeak>,
}

/// The moment when most was in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HistoryPeak {
    /// Milliseconds since the start.
    pub time_ms: f64,
    /// Bytes in use.
    pub bytes: i64,
}

/// The largest heap of several snapshots, which was mostly between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageSeriesPeak {
    /// Bytes in use.
    pub bytes: i64,
    /// Milliseconds since the first snapshot, below zero if it was before; `None` if unknown.
    pub since_ms: Option<f64>,
}

/// How a function grows over the snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct PageGrowth {
    /// The function, in [`WebReport::functions`].
    pub function: u32,
    /// What the growth is called. The page has signs and an order for "steady growth", "grows in
    /// steps", "levels off", "burst, freed" and "no trend", and shows any other words as the last.
    pub verdict: &'static str,
    /// The slope of a straight line through the values, per hour.
    pub slope: f64,
    /// How well that line fits, from 0 to 1.
    pub r2: f64,
    /// In how many of the steps it grew.
    pub grew: u64,
    /// How many steps there are.
    pub steps: u64,
    /// The value in the first snapshot.
    pub first: i64,
    /// The value in the last snapshot.
    pub last: i64,
    /// The largest value.
    pub max: i64,
}
