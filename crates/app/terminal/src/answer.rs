//! The questions that the view asks about a profile. The answers are plain rows.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, CodePlace, Granularity, ProfileQuestion, Query, QueryFilters, QuestionSource,
    SortKey, TreeOptions, TypeSelection, ValueEstimate,
    comment::{find_single_value, program_and_title},
    coverage::RssBreakdown,
    info::info,
    peak::{LargestHeap, peak},
    peek::peek,
    report::report,
    timeline::{TimelineRow, timeline},
    top::top,
    tree::tree,
};

/// Maximum number of rows of a table. The other rows are summed up in one row.
const MAX_ROWS: usize = 2000;
/// Maximum number of nodes of a tree.
const MAX_NODES: usize = 20_000;
/// Smallest share of the total that a node of a tree must have.
const MIN_NODE_SHARE: f64 = 0.001;

/// Facts about a snapshot as a whole.
#[derive(Clone, Debug, Default)]
pub struct ViewFacts {
    /// Bytes in use; `None` if the profile does not have them.
    pub in_use: Option<i64>,
    /// The uncertainty of the bytes in use.
    pub estimate: Option<ValueEstimate>,
    /// The largest heap during the recording, if the profile has it.
    pub peak: Option<LargestHeap>,
    /// Whether every allocation was counted.
    pub is_exact: bool,
    /// RSS at the end, without the collector's own tables.
    pub rss: Option<i64>,
    /// Highest RSS, without the collector's own tables.
    pub peak_rss: Option<i64>,
    /// The program's name.
    pub program: String,
    /// Process id, which distinguishes the process from other processes of the same program.
    pub process: Option<u32>,
}

/// The settings of a question that the user can change in the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewQuestion {
    /// The sample type; `None` for the profile's default.
    pub(crate) sample_type: Option<String>,
    /// Whether rows are functions of libraries, too, instead of their callers.
    pub(crate) all_code: bool,
    pub(crate) focus: Option<String>,
}

impl ViewQuestion {
    fn query(&self) -> Query {
        Query {
            sample_type: self.sample_type.clone(),
            own_code: !self.all_code,
            filters: QueryFilters {
                focus: self.focus.clone(),
                ..QueryFilters::default()
            },
            ..Query::default()
        }
    }
}

/// A sample type, and the position of the type that counts its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewSampleType {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) objects: Option<usize>,
}

/// A function's identity: its name and its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ViewFunction {
    pub(crate) name: String,
    /// Path of the function's file; empty if it is not known.
    pub(crate) file: String,
}

impl ViewFunction {
    fn from_place(place: &CodePlace) -> Self {
        Self {
            name: place.function.clone(),
            file: place.file.clone().unwrap_or_default(),
        }
    }
}

/// The row of a function in the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ViewRow {
    pub(crate) function: ViewFunction,
    /// Name of the function. If other functions have the same name, the last part of its file's
    /// path follows.
    pub(crate) name: String,
    pub(crate) flat: i64,
    pub(crate) cum: i64,
    pub(crate) objects: Option<i64>,
    pub(crate) estimate: Option<ValueEstimate>,
}

/// The answer to a question: the rows of a profile's functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewAnswer {
    pub(crate) kinds: Vec<ViewSampleType>,
    /// Position of the question's sample type.
    pub(crate) kind: usize,
    pub(crate) unit: String,
    pub(crate) left_out: i64,
    pub(crate) rows: Vec<ViewRow>,
    /// The sum of the rows that are left out, and their number.
    pub(crate) other: (i64, i64),
}

fn session(
    source: &QuestionSource,
    query: &Query,
    types: TypeSelection,
) -> Result<AnalysisSession> {
    Ok(AnalysisSession::new(ProfileQuestion::new(
        vec![source.clone()],
        query,
        types,
    )?)?)
}

/// Returns the rows of a profile's functions, the largest first.
pub(crate) fn answer(source: &QuestionSource, ask: &ViewQuestion) -> Result<ViewAnswer> {
    let query = Query {
        limit: Some(MAX_ROWS),
        ..ask.query()
    };
    let session = session(source, &query, TypeSelection::All)?;
    let found = top(&session, 1, &query, true)?;
    let kinds: Vec<ViewSampleType> = found
        .types
        .iter()
        .map(|(of, objects)| ViewSampleType {
            name: of.r#type.clone(),
            unit: of.unit.clone(),
            objects: *objects,
        })
        .collect();
    let asked = &found.header.sample_type;
    let kind = kinds
        .iter()
        .position(|kind| kind.name == asked.r#type && kind.unit == asked.unit);
    let kind = kind.unwrap_or_default();
    let objects = kinds.get(kind).and_then(|kind| kind.objects);
    let rows = found.rows.iter().map(|row| ViewRow {
        function: ViewFunction::from_place(&row.place),
        name: row.place.label(),
        flat: row.flat,
        cum: row.cum,
        objects: objects.and_then(|at| Some(row.values.get(at)?.0)),
        estimate: row.estimates[0],
    });
    Ok(ViewAnswer {
        rows: rows.collect(),
        kind,
        unit: asked.unit.clone(),
        left_out: found.header.left_out,
        other: (found.other.flat, found.other.rows),
        kinds,
    })
}

/// Returns the facts about a profile as a whole.
pub(crate) fn facts(source: &QuestionSource) -> Result<ViewFacts> {
    let session = session(source, &Query::default(), TypeSelection::All)?;
    let info = info(&session)?;
    let of = |name: &str| info.types.iter().find(|t| t.sample_type.r#type == name);
    let in_use = of("inuse_space");
    let said = |key| find_single_value(&info.comments, key);
    Ok(ViewFacts {
        in_use: in_use.map(|t| t.net),
        estimate: in_use.and_then(|t| t.estimate),
        peak: peak(&session)?,
        is_exact: info.period == 1,
        rss: info.rss.map(RssBreakdown::program_bytes),
        peak_rss: info.peak_rss.map(RssBreakdown::program_bytes),
        program: program_and_title(&info.comments).unwrap_or_default(),
        process: said("pid").and_then(|pid| pid.parse().ok()),
    })
}

/// Returns the history of the recording that a profile contains; empty if it contains none.
pub(crate) fn history(source: &QuestionSource) -> Result<Vec<TimelineRow>> {
    let session = session(source, &Query::default(), TypeSelection::All)?;
    Ok(timeline(&session)?.rows)
}

/// The callers, callees and lines of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ViewDetail {
    pub(crate) name: String,
    pub(crate) cum: i64,
    pub(crate) callers: Vec<(String, i64)>,
    pub(crate) callees: Vec<(String, i64)>,
    /// The function's lines, with the value of each line.
    pub(crate) lines: Vec<(String, i64)>,
}

/// Returns the callers, callees and lines of a function.
pub(crate) fn detail(
    source: &QuestionSource,
    ask: &ViewQuestion,
    function: &ViewFunction,
) -> Result<ViewDetail> {
    let query = ask.query();
    let question = ProfileQuestion::new(vec![source.clone()], &query, TypeSelection::Requested)?;
    let session_of_peek =
        AnalysisSession::new(question.with_neighbours_of(|of| of == function.name))?;
    let found = peek(&session_of_peek, &query)?;
    let mut detail = ViewDetail {
        name: function.name.clone(),
        ..ViewDetail::default()
    };
    let is_it = |place: &CodePlace| ViewFunction::from_place(place) == *function;
    if let Some(row) = found.rows.iter().find(|row| is_it(&row.place)) {
        let around = found.neighbours(row)?;
        let text = |id| found.places.get(id).label();
        detail.name = row.place.label();
        detail.cum = row.cum;
        detail.callers = around
            .callers
            .iter()
            .map(|(id, value)| (id.map_or_else(|| "(root)".to_string(), text), *value))
            .collect();
        detail.callees = around
            .callees
            .iter()
            .map(|(id, value)| (text(*id), *value))
            .collect();
    }
    let query = Query {
        granularity: Granularity::Lines,
        sort: SortKey::Cum,
        ..query
    };
    let found = top(
        &session(source, &query, TypeSelection::Requested)?,
        1,
        &query,
        false,
    )?;
    let own = found.rows.iter().filter(|row| is_it(&row.place));
    detail.lines = own
        .map(|row| {
            let file = row.place.file.as_deref().unwrap_or_default();
            let file = file.rsplit('/').next().unwrap_or_default();
            let at = match (file, row.place.line) {
                ("", _) => "no line known".to_string(),
                (file, Some(line)) if line != 0 => format!("{file}:{line}"),
                (file, _) => file.to_string(),
            };
            (at, row.cum)
        })
        .collect();
    Ok(detail)
}

/// A node of the call tree. The nodes are in pre-order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ViewNode {
    pub(crate) name: String,
    pub(crate) depth: usize,
    pub(crate) own: i64,
    pub(crate) total: i64,
}

/// Returns the call tree from the roots down.
pub(crate) fn nodes(source: &QuestionSource, ask: &ViewQuestion) -> Result<Vec<ViewNode>> {
    let query = ask.query();
    let question = ProfileQuestion::new(vec![source.clone()], &query, TypeSelection::Requested)?;
    let session = AnalysisSession::new(question.with_tree(TreeOptions {
        reverse: false,
        least: MIN_NODE_SHARE,
        most: Some(MAX_NODES),
    }))?;
    let found = tree(&session, &query)?;
    let rows = found.rows()?;
    let node = |row: &heapprof_analysis::tree::TreeRow| ViewNode {
        name: found.places.get(row.place).label(),
        depth: row.depth,
        own: row.own[0],
        total: row.total[0],
    };
    Ok(rows.iter().map(node).collect())
}

/// The growth of a function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GrownFunction {
    pub(crate) name: String,
    pub(crate) verdict: &'static str,
    pub(crate) values: Vec<i64>,
    pub(crate) slope: f64,
    pub(crate) grew: (usize, usize),
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// Returns the growth of functions over several moments, the largest growth first. For fewer than
/// three moments, the result is empty.
pub(crate) fn grown(sources: &[QuestionSource], ask: &ViewQuestion) -> Result<Vec<GrownFunction>> {
    if sources.len() < 3 {
        return Ok(Vec::new());
    }
    let query = Query {
        granularity: Granularity::Lines,
        ..ask.query()
    };
    let question = ProfileQuestion::new(sources.to_vec(), &query, TypeSelection::All)?;
    let session = AnalysisSession::new(question.with_tree(TreeOptions {
        reverse: false,
        least: MIN_NODE_SHARE,
        most: Some(MAX_NODES),
    }))?;
    let found = report(&session)?;
    let kind = match &ask.sample_type {
        Some(asked) => found.types.iter().position(|t| t.r#type == *asked),
        None => Some(found.default),
    };
    let Some((kind, rows)) = kind.and_then(|kind| Some((kind, found.growth.get(&kind)?))) else {
        return Ok(Vec::new());
    };
    let mut values = vec![vec![0i64; found.moments.len()]; found.functions.len()];
    for (at, moment) in found.moments.iter().enumerate() {
        for &(node, of, value) in &moment.values {
            if of as usize == kind {
                let place = found.nodes[node as usize].place as usize;
                let function = found.places[place].0 as usize;
                let sum = &mut values[function][at];
                *sum = sum.saturating_add(value);
            }
        }
    }
    let grown = rows.iter().map(|row| GrownFunction {
        name: found.functions[row.function as usize].label.clone(),
        verdict: row.verdict.text(),
        values: std::mem::take(&mut values[row.function as usize]),
        slope: row.slope,
        grew: (row.grew, row.steps),
        first: row.first,
        last: row.last,
    });
    Ok(grown.collect())
}
