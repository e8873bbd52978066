//! The report `report`: everything that a page shows, as plain rows. The main parts are the call
//! tree by line and the growth of functions. Each node has its value without its children, in every
//! sample type of every profile.

use std::collections::{BTreeMap, HashMap};

use heapprof_profile::PeakPart;
use heapprof_totals::call_tree::{CallTree, NO_PARENT};
use heapprof_totals::same_name::NameAndFile;
use rusqlite::Row;

use crate::comment;
use crate::coverage::{self, RssBreakdown};
use crate::error::AnalysisError;
use crate::growth::{self, FunctionGrowth};
use crate::header::SampleType;
use crate::peak::{LargestHeap, peak};
use crate::place::{CodePlace, ShownFile};
use crate::question::{ProfileQuestion, TreeBelow, is_heap};
use crate::report_imports::add_imports;
pub use crate::report_imports::{ImportedModule, ReportImports};
pub use crate::report_tree::{ReportFunction, ReportNode};
use crate::session::{AnalysisSession, read_estimate};
use crate::stats::{StatsSize, sizes};
use crate::timeline::{TimelineRow, history};

/// A profile of the report, as a moment in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportMoment {
    /// The profile's path or name.
    pub name: String,
    /// The time when the values were taken, in nanoseconds since 1970; 0 if unknown.
    pub time_nanos: i64,
    /// The mean number of bytes between samples; 1 if every allocation is counted, 0 if unknown.
    pub period: i64,
    /// The RSS at this moment, and the highest RSS so far, without the collector's own tables.
    pub rss: [Option<i64>; 2],
    /// The parts of the highest RSS, if the recording divided it.
    pub peak_parts: Vec<PeakPart>,
    /// The signed sum of each sample type; 0 if the profile does not have the type.
    pub totals: Vec<i64>,
    /// The possible error of each type's sum, as a share of the sum, if the sum is an estimate.
    pub errors: Vec<Option<f64>>,
    /// The values of nodes without their children: the node, the sample type, and the value. Values
    /// that are not listed are 0.
    pub values: Vec<(u32, u32, i64)>,
}

/// The contents of the page that `report` makes.
#[derive(Clone, Debug, Default)]
pub struct ReportContents {
    /// The name of the profiled program; empty if the profiles name neither a program nor a mapped
    /// file.
    pub program: String,
    /// The period of the last profile, as in [`ReportMoment::period`].
    pub period: i64,
    /// The sample types of all profiles.
    pub types: Vec<SampleType>,
    /// The position of the type that is shown first.
    pub default: usize,
    /// The functions.
    pub functions: Vec<ReportFunction>,
    /// The lines of functions, each with the function's position and the line; 0 if the line is
    /// unknown. The first entry stands for the nodes that were cut.
    pub places: Vec<(u32, i64)>,
    /// The tree in pre-order.
    pub nodes: Vec<ReportNode>,
    /// The `(other)` nodes, which stand for nodes that are too small to be seen: their number, and
    /// the sum of their values in the last profile for each type.
    pub left_out: (usize, Vec<i64>),
    /// The profiles, in the order in which they were given.
    pub moments: Vec<ReportMoment>,
    /// The growth of functions, by the position of the sample type; empty for fewer than three
    /// profiles.
    pub growth: BTreeMap<usize, Vec<FunctionGrowth>>,
    /// The time and the size of the largest heap, according to the profiles.
    pub peak: Option<LargestHeap>,
    /// The history of the recording, if there is only one profile and the profile has a history.
    pub history: Vec<TimelineRow>,
    /// The size histogram of the whole process's allocations in the last profile, if sizes were
    /// counted.
    pub sizes: Vec<StatsSize>,
    /// How the page folds Python's imports, if the tree has any. Their functions and places are the
    /// last ones.
    pub imports: Option<ReportImports>,
}

/// Reports the contents of a page about all profiles of the session's question. The question must
/// have been made with `TypeSelection::All`, and by lines.
///
/// # Errors
/// The session is over a database, or the call tree has too many nodes.
pub fn report(session: &AnalysisSession) -> Result<ReportContents, AnalysisError> {
    let question = session.require_question()?;
    let tree = question.tree()?;
    build_report(session, question, tree, &question.net())
}

/// Reports the part of the tree that [`report`] left out below a path. On the page, a node named
/// `(other)` stands for this part.
///
/// A path lists the names of functions, from the root on. A newline and a file may follow a name.
/// If there are several paths, each one leads to an `(other)` node in the tree of the path before
/// it. The functions of the path are in the tree, too, without their lines. The tree is empty if
/// nothing was left out.
///
/// # Errors
/// The errors are the same as for [`report`].
pub fn report_below(
    session: &AnalysisSession,
    paths: &[Vec<String>],
) -> Result<ReportContents, AnalysisError> {
    let question = session.require_question()?;
    let TreeBelow { tree, net } = question.tree_below(paths)?;
    build_report(session, question, &tree, &net)
}

/// Makes the report of a tree of the question. `net` holds the signed sum of each block.
fn build_report(
    session: &AnalysisSession,
    question: &ProfileQuestion,
    tree: &CallTree,
    net: &[i64],
) -> Result<ReportContents, AnalysisError> {
    let mut report = ReportContents {
        types: question.types.iter().map(sample_type).collect(),
        ..ReportContents::default()
    };
    read_moments(session, &mut report)?;
    let mut places = ReportNumbering::new(question);
    let nodes = tree.node.iter().map(|node| ReportNode {
        parent: (node.parent != NO_PARENT).then_some(node.parent),
        place: places.number_entity(node.entity),
    });
    let nodes: Vec<ReportNode> = nodes.collect();
    let blocks = question.blocks().enumerate();
    let blocks: Vec<ReportBlock> = blocks
        .map(|(at, of)| ReportBlock::new(question, tree, at, of, net[at]))
        .collect();
    TreeWithRest::new(&mut report, &nodes, &blocks).write();
    for moment in &mut report.moments {
        moment.values.sort_unstable();
    }
    report.peak = peak(session)?;
    if report.moments.len() == 1 {
        report.history = history(session)?;
    }
    report.sizes = sizes(session, report.moments.len())?;
    if report.moments.len() >= 3 {
        read_growth(session, &mut report, &mut places)?;
    }
    (report.functions, report.places) = (places.functions, places.places);
    let (functions, places) = (&mut report.functions, &mut report.places);
    report.imports = add_imports(functions, places, &report.nodes);
    Ok(report)
}

fn sample_type((r#type, unit): &(String, String)) -> SampleType {
    SampleType {
        r#type: r#type.clone(),
        unit: unit.clone(),
    }
}

fn read_moments(
    session: &AnalysisSession,
    report: &mut ReportContents,
) -> Result<(), AnalysisError> {
    let width = report.types.len();
    let mut defaults: Vec<String> = Vec::new();
    session.each(
        "SELECT name, time_nanos, period, default_sample_type FROM profile ORDER BY id",
        [],
        |row| {
            report.moments.push(ReportMoment {
                name: row.get(0)?,
                time_nanos: row.get(1)?,
                period: row.get(2)?,
                totals: vec![0; width],
                errors: vec![None; width],
                ..ReportMoment::default()
            });
            report.period = row.get(2)?;
            defaults.push(row.get(3)?);
            Ok::<_, AnalysisError>(())
        },
    )?;
    let estimate = AnalysisSession::estimate_columns("t", "");
    let sql = format!("SELECT t.profile, t.type, t.net, {estimate} FROM profile_total t");
    let moments = &mut report.moments;
    session.each(&sql, [], |row| {
        let (profile, at) = (position(row, 0)?, position(row, 1)?);
        let net: i64 = row.get(2)?;
        moments[profile].totals[at] = net;
        let range = read_estimate(row, 3)?.map(|e| (e.high - e.low) as f64 / 2.0);
        moments[profile].errors[at] = range.filter(|_| net != 0).map(|r| r / net.abs() as f64);
        Ok::<_, AnalysisError>(())
    })?;
    let named = |name: &str| report.types.iter().position(|t| t.r#type == name);
    let last = report.types.len().saturating_sub(1);
    let default = heapprof_profile::common_default(defaults.iter().map(String::as_str));
    report.default = default
        .and_then(named)
        .or_else(|| named("inuse_space"))
        .unwrap_or(last);
    for (i, moment) in (1..).zip(&mut report.moments) {
        let comments = comment::comments_of(session, i)?;
        let of_program = |resident: Option<RssBreakdown>| resident.map(|r| r.program_bytes());
        moment.rss = coverage::resident(&comments, [None, None]).map(of_program);
        moment.peak_parts = coverage::peak_parts(&comments);
        if let Some(program) = comment::program_and_title(&comments) {
            report.program = program;
        }
    }
    if report.program.is_empty() {
        // The first mapped file is mostly the program's own file.
        let first = "SELECT filename FROM mapping WHERE filename != '' ORDER BY id LIMIT 1";
        let first: Vec<String> = session.rows(first, [], |row| row.get(0))?;
        let name = first.first().and_then(|file| file.rsplit('/').next());
        report.program = name.unwrap_or_default().to_string();
    }
    Ok(())
}

/// Reads a number that counts from 1, and returns it as a position that counts from 0.
fn position(row: &Row<'_>, column: usize) -> rusqlite::Result<usize> {
    Ok(row.get::<_, u32>(column)? as usize - 1)
}

/// The functions and lines in a report, each with a number.
struct ReportNumbering<'q> {
    question: &'q ProfileQuestion,
    functions: Vec<ReportFunction>,
    places: Vec<(u32, i64)>,
    /// The number of each entity's place; 0 until the place has a number.
    place_of_entity: Vec<u32>,
    /// The function's number for each row of the function table; 0 until the function has a number.
    function_of_row: Vec<u32>,
    /// The number of each function, by its name and file.
    by_name: HashMap<NameAndFile, u32>,
}

impl<'q> ReportNumbering<'q> {
    fn new(question: &'q ProfileQuestion) -> Self {
        Self {
            question,
            // Place 0 and function 0 stand for the nodes that were cut.
            functions: vec![ReportFunction {
                name: crate::OTHER_NAME.to_string(),
                label: crate::OTHER_NAME.to_string(),
                ..ReportFunction::default()
            }],
            places: vec![(0, 0)],
            place_of_entity: vec![0; question.table.entity.len()],
            function_of_row: vec![0; question.table.function.len()],
            by_name: HashMap::new(),
        }
    }

    fn number_entity(&mut self, entity: u32) -> u32 {
        if self.place_of_entity[entity as usize] == 0 {
            let row = self.question.table.entity[entity as usize];
            let function = self.number_function_row(row.function as usize);
            self.place_of_entity[entity as usize] = self.places.len() as u32;
            self.places.push((function, row.line));
        }
        self.place_of_entity[entity as usize]
    }

    /// Returns the number of the function in a row of the function table. Functions with the same
    /// name and file have one number.
    fn number_function_row(&mut self, row: usize) -> u32 {
        if self.function_of_row[row] != 0 {
            return self.function_of_row[row];
        }
        let table = &self.question.table;
        let named = table.function[row];
        let key = (named.name, table.file_of(row));
        let module = &self.question.modules()[row];
        let place = CodePlace {
            function: table.text(named.name).to_string(),
            file: Some(table.text(named.filename).to_string()),
            shown_file: ShownFile::End(self.question.file_end(row)),
            ..CodePlace::default()
        };
        let function = ReportFunction {
            label: place.label(),
            name: place.function,
            file: place.file.unwrap_or_default(),
            start_line: named.start_line,
            module: module.name.clone(),
            is_library: module.is_library,
        };
        let next = self.functions.len() as u32;
        let number = *self.by_name.entry(key).or_insert(next);
        match self.functions.get_mut(number as usize) {
            Some(same) => same.merge(&function),
            None => self.functions.push(function),
        }
        self.function_of_row[row] = number;
        number
    }
}

/// The values of one sample type of one profile. Each node has two values: its value without its
/// children, and the part of its total that belongs to children that were cut.
struct ReportBlock {
    profile: usize,
    /// The position of the sample type.
    r#type: usize,
    own: Vec<i64>,
    left: Vec<i64>,
    /// The part of the block's signed sum that belongs to no root of the tree.
    whole_rest: i64,
}

impl ReportBlock {
    /// Extracts the block at a position from the tree.
    fn new(q: &ProfileQuestion, tree: &CallTree, at: usize, of: (usize, usize), net: i64) -> Self {
        let (profile, column) = of;
        let part = &q.parts[profile];
        let of_block = |sums: &[i64]| -> Vec<i64> {
            sums.iter().skip(at).step_by(tree.width).copied().collect()
        };
        let (own, total) = (of_block(&tree.own), of_block(&tree.total));
        let mut block = Self {
            profile,
            r#type: part.types[part.columns[column]],
            left: total
                .iter()
                .zip(&own)
                .map(|(total, own)| total - own)
                .collect(),
            own,
            whole_rest: net,
        };
        for (node, total) in tree.node.iter().zip(&total) {
            match node.parent {
                NO_PARENT => block.whole_rest -= total,
                parent => block.left[parent as usize] -= total,
            }
        }
        block
    }
}

/// Writes the nodes of a tree to a report. Below each node whose children were cut, it adds one
/// `(other)` node for them.
struct TreeWithRest<'a> {
    report: &'a mut ReportContents,
    nodes: &'a [ReportNode],
    blocks: &'a [ReportBlock],
    /// The nodes on the path, each with its position in the tree and its position in the report.
    path: Vec<(u32, u32)>,
}

impl<'a> TreeWithRest<'a> {
    fn new(
        report: &'a mut ReportContents,
        nodes: &'a [ReportNode],
        blocks: &'a [ReportBlock],
    ) -> Self {
        report.left_out.1 = vec![0; report.types.len()];
        Self {
            report,
            nodes,
            blocks,
            path: Vec::new(),
        }
    }

    fn write(&mut self) {
        for (i, node) in (0..).zip(self.nodes) {
            while self.path.last().map(|&(old, _)| old) != node.parent && !self.path.is_empty() {
                self.close();
            }
            let own = |block: &ReportBlock| block.own[i as usize];
            let at = self.put(node.place, own);
            self.path.push((i, at));
        }
        while !self.path.is_empty() {
            self.close();
        }
        self.put_rest(|block| block.whole_rest);
    }

    /// Adds the `(other)` node below the last node of the path, and removes that node from the
    /// path.
    fn close(&mut self) {
        if let Some(&(old, _)) = self.path.last() {
            self.put_rest(|block| block.left[old as usize]);
        }
        self.path.pop();
    }

    /// Adds an `(other)` node, unless its value is 0 in all blocks.
    fn put_rest(&mut self, left: impl Fn(&ReportBlock) -> i64) {
        if self.blocks.iter().all(|block| left(block) == 0) {
            return;
        }
        self.report.left_out.0 += 1;
        let last = self.report.moments.len() - 1;
        for block in self.blocks {
            if block.profile == last {
                self.report.left_out.1[block.r#type] += left(block);
            }
        }
        self.put(0, left);
    }

    /// Adds a node below the path and returns its position.
    fn put(&mut self, place: u32, value: impl Fn(&ReportBlock) -> i64) -> u32 {
        let at = self.report.nodes.len() as u32;
        let parent = self.path.last().map(|&(_, at)| at);
        self.report.nodes.push(ReportNode { parent, place });
        for block in self.blocks {
            let value = value(block);
            if value != 0 {
                let values = &mut self.report.moments[block.profile].values;
                values.push((at, block.r#type as u32, value));
            }
        }
        at
    }
}

/// Reads the flat value of each function at each moment, and judges how it grew.
fn read_growth(
    session: &AnalysisSession,
    report: &mut ReportContents,
    numbers: &mut ReportNumbering<'_>,
) -> Result<(), AnalysisError> {
    let moments = report.moments.len();
    let mut series = BTreeMap::<(usize, u32), Vec<i64>>::new();
    session.each(
        "SELECT t.type, t.function, t.profile, t.flat FROM function_total t WHERE t.flat != 0",
        [],
        |row| {
            let key = (
                position(row, 0)?,
                numbers.number_function_row(position(row, 1)?),
            );
            if !is_heap(&report.types[key.0].r#type) {
                return Ok(());
            }
            let (profile, flat): (u32, i64) = (row.get(2)?, row.get(3)?);
            series.entry(key).or_insert_with(|| vec![0; moments])[profile as usize - 1] += flat;
            Ok::<_, AnalysisError>(())
        },
    )?;
    let times: Vec<i64> = report.moments.iter().map(|m| m.time_nanos).collect();
    for ((at, function), values) in series {
        let grown = growth::judge(function, &times, &values);
        report.growth.entry(at).or_default().push(grown);
    }
    for grown in report.growth.values_mut() {
        growth::sort_by_verdict(grown);
    }
    Ok(())
}

/// Returns the statement behind each view of a page, as `heapprof sql` runs it. `{type}` stands for
/// the name of the sample type, and `{function}` for the name of a function.
pub fn report_sql() -> BTreeMap<String, String> {
    let of_type = "JOIN sample_type s ON s.id = t.type WHERE s.type = '{type}'";
    let table = format!(
        "SELECT f.name, sum(t.flat) AS flat, sum(t.cum) AS cum, f.filename FROM function_total t \
         JOIN function f ON f.id = t.function {of_type} GROUP BY f.id ORDER BY flat DESC, cum DESC"
    );
    let diff = format!(
        "SELECT f.name, sum(CASE t.profile WHEN 1 THEN t.flat ELSE 0 END) AS before, sum(CASE \
         t.profile WHEN 2 THEN t.flat ELSE 0 END) AS after, f.filename FROM function_total t JOIN \
         function f ON f.id = t.function {of_type} GROUP BY f.id ORDER BY abs(after - before) DESC"
    );
    let flame = "SELECT t.id, t.depth, f.name, t.self, t.total, f.filename FROM node t JOIN \
                 function f ON f.id = t.function JOIN sample_type s ON s.id = t.type WHERE \
                 s.type = '{type}' AND t.profile = 1 ORDER BY t.id";
    let map = format!(
        "SELECT f.module, f.name, sum(t.flat) AS flat, f.filename FROM function_total t JOIN \
         function f ON f.id = t.function {of_type} GROUP BY f.id ORDER BY f.module, flat DESC"
    );
    let sizes = "SELECT s.type, s.unit, t.net FROM profile_total t JOIN sample_type s ON s.id = \
                 t.type ORDER BY t.position";
    let timeline = format!(
        "SELECT p.time_nanos, p.name, t.net FROM profile_total t JOIN profile p ON p.id = \
         t.profile {of_type} ORDER BY p.time_nanos"
    );
    let growth = format!(
        "SELECT f.name, p.time_nanos, sum(t.flat) AS flat, f.filename FROM function_total t JOIN \
         profile p ON p.id = t.profile JOIN function f ON f.id = t.function {of_type} GROUP BY \
         f.id, p.id ORDER BY f.name, f.filename, p.time_nanos"
    );
    let pivot = format!(
        "SELECT f.name, sum(t.flat) AS flat, sum(t.cum) AS cum, f.filename FROM function_total t \
         JOIN function f ON f.id = t.function {of_type} AND f.name = '{{function}}' GROUP BY f.id"
    );
    [
        ("table", table),
        ("table.diff", diff),
        ("flame", flame.to_string()),
        ("map", map),
        ("sizes", sizes.to_string()),
        ("timeline", timeline),
        ("growth", growth),
        ("pivot", pivot),
    ]
    .map(|(view, text)| (view.to_string(), text))
    .into()
}
