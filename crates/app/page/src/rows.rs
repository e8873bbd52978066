//! Converts the rows of a report to the form of a page.

use std::collections::{BTreeMap, HashMap};

use heapprof_analysis::{
    growth::FunctionGrowth,
    report::{ReportFunction, ReportImports, ReportMoment, report_sql},
};
use heapprof_web as web;

use crate::paths::{PathNames, PathRule};
use crate::process;
use crate::source_file::SourceFiles;

/// A function that makes a command for each view of a page, by the view's name. Its parameters are
/// the names of the profiles, the names of the base's profiles, and the rule for showing paths.
pub type ViewCommands<'a> = &'a dyn Fn(&[String], &[String], &PathRule) -> BTreeMap<String, String>;

/// The names, paths and sources of a page.
pub struct ReportPage<'a> {
    /// The names of the profiles, without the base.
    pub names: &'a [String],
    /// The names of the base's profiles. These profiles together are the first moment of the
    /// report.
    pub base: &'a [String],
    /// Which paths the page shows.
    pub paths: PathNames,
    /// The source files, if the page shows the text of source lines.
    pub sources: Option<&'a SourceFiles<'a>>,
    /// A function that makes a command for each view. The command shows the same rows as the view.
    pub commands: ViewCommands<'a>,
}

/// Makes the rows of a page.
pub fn page_rows(
    found: heapprof_analysis::report::ReportContents,
    page: &ReportPage<'_>,
) -> heapprof_web::WebReport {
    let paths = PathRule::new(page.paths);
    let base = (!page.base.is_empty()).then_some(0);
    let mut rows = rows(found, base, &paths, page.sources);
    rows.commands = (page.commands)(page.names, page.base, &paths);
    rows
}

/// Makes the rows of a page. `base` is the moment with which the last moment is compared.
fn rows(
    found: heapprof_analysis::report::ReportContents,
    base: Option<usize>,
    paths: &PathRule,
    sources: Option<&SourceFiles<'_>>,
) -> web::WebReport {
    let source = sources.map_or_else(BTreeMap::new, |sources| source_lines(&found, sources));
    let (mut files, mut modules) = (NumberedValues::default(), NumberedValues::default());
    let mut functions = Vec::with_capacity(found.functions.len());
    let mut source_of_file = BTreeMap::new();
    for function in &found.functions {
        let file = files.number(paths.shown(&function.file));
        if let Some(lines) = source.get(function.file.as_str()) {
            source_of_file.insert(file, lines.clone());
        }
        functions.push(web::PageFunction {
            name: function.name.clone(),
            file,
            module: modules.number(module_of(function)),
            mapped: None,
            start_line: function.start_line,
        });
    }
    let first = found.moments.first().map_or(0, |moment| moment.time_nanos);
    let frames = found.places.iter();
    let frames = frames.map(|&(function, line)| web::PageFrame { function, line });
    let nodes = found.nodes.iter().map(|node| web::PageNode {
        parent: node.parent,
        frame: node.place,
    });
    let module = |(name, is_library): (String, bool)| web::PageModule { name, is_library };
    let named = |at: usize| found.types[at].r#type.clone();
    let growth = found.growth.iter().map(|(&at, rows)| {
        let rows = rows.iter().map(growth_row).collect();
        (named(at), rows)
    });
    let last = found.moments.last();
    let errors = last.map_or(&[][..], |moment| &moment.errors);
    let estimates = errors.iter().enumerate();
    let estimates = estimates.filter_map(|(at, error)| Some((named(at), (*error)?)));
    web::WebReport {
        tool: concat!("heapprof ", env!("CARGO_PKG_VERSION")).to_string(),
        period: found.period,
        default_type: found
            .types
            .get(found.default)
            .map_or_else(String::new, |t| t.r#type.clone()),
        base,
        own_code: true,
        frames: frames.collect(),
        nodes: nodes.collect(),
        left_out: web::OmittedNodes {
            nodes: found.left_out.0 as u64,
            values: found.left_out.1.clone(),
        },
        growth: growth.collect(),
        growth_own_code: Some(false),
        sql: report_sql(),
        history: process::curve(&found.history),
        peak: found.peak.filter(|_| found.moments.len() > 1).map(|peak| {
            let time = peak.time_nanos.filter(|_| first != 0);
            web::PageSeriesPeak {
                bytes: peak.bytes,
                since_ms: time.map(|time| time.saturating_sub(first) as f64 / 1e6),
            }
        }),
        sizes: process::sizes(&found.sizes, found.period == 1),
        estimates: estimates.collect(),
        imports: found.imports.as_ref().map(imports),
        forks: None,
        source: source_of_file,
        snapshots: found
            .moments
            .iter()
            .map(|moment| snapshot(moment, found.types.len(), first, paths))
            .collect(),
        types: found
            .types
            .iter()
            .map(|t| web::PageSampleType {
                name: t.r#type.clone(),
                unit: t.unit.clone(),
            })
            .collect(),
        program: found.program,
        functions,
        files: files.all,
        modules: modules.all.into_iter().map(module).collect(),
        ..web::WebReport::default()
    }
}

fn imports(found: &ReportImports) -> web::PageImports {
    let modules = found.modules.iter();
    web::PageImports {
        machinery: found.machinery.clone(),
        modules: modules
            .map(|module| [module.line, module.outermost, module.inner])
            .collect(),
    }
}

/// Returns the module of a function, and whether the module is a library.
fn module_of(function: &ReportFunction) -> (String, bool) {
    let name = match function.module.as_str() {
        "" => "(no module)",
        name => name,
    };
    (name.to_string(), function.is_library)
}

/// Distinct values, each with a number that is its position.
struct NumberedValues<T> {
    all: Vec<T>,
    by_value: HashMap<T, u32>,
}

impl<T> Default for NumberedValues<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            by_value: HashMap::new(),
        }
    }
}

impl<T: Clone + Eq + std::hash::Hash> NumberedValues<T> {
    fn number(&mut self, value: T) -> u32 {
        let next = self.all.len() as u32;
        let number = *self.by_value.entry(value.clone()).or_insert(next);
        if number == next {
            self.all.push(value);
        }
        number
    }
}

fn snapshot(
    moment: &ReportMoment,
    types: usize,
    first: i64,
    paths: &PathRule,
) -> web::PageSnapshot {
    let mut nodes: Vec<u32> = moment.values.iter().map(|&(node, ..)| node).collect();
    nodes.dedup();
    let mut values = vec![vec![0; nodes.len()]; types];
    let mut at = 0;
    for &(node, of, value) in &moment.values {
        while nodes[at] != node {
            at += 1;
        }
        values[of as usize][at] = value;
    }
    web::PageSnapshot {
        name: paths.name(&moment.name),
        time_ms: moment.time_nanos / 1_000_000,
        since_ms: (moment.time_nanos - first) as f64 / 1e6,
        period: moment.period,
        rss: moment.rss[0],
        peak_rss: moment.rss[1],
        peak_parts: moment
            .peak_parts
            .iter()
            .map(|part| web::PagePeakPart {
                kind: part.kind.clone(),
                name: paths.shown(&part.name),
                bytes: i64::try_from(part.bytes)
                    .unwrap_or(web::MAX_VALUE)
                    .min(web::MAX_VALUE),
            })
            .collect(),
        total: moment.totals.clone(),
        errors: match moment.errors.iter().any(Option::is_some) {
            true => moment.errors.clone(),
            false => Vec::new(),
        },
        nodes,
        values,
    }
}

fn growth_row(of: &FunctionGrowth) -> web::PageGrowth {
    web::PageGrowth {
        function: of.function,
        verdict: of.verdict.text(),
        slope: of.slope,
        r2: of.r2,
        grew: of.grew as u64,
        steps: of.steps as u64,
        first: of.first,
        last: of.last,
        max: of.largest,
    }
}

/// Returns the text of the lines that have values, and of the lines around them, by file.
fn source_lines<'a>(
    found: &'a heapprof_analysis::report::ReportContents,
    sources: &SourceFiles<'_>,
) -> BTreeMap<&'a str, BTreeMap<u32, String>> {
    /// Number of lines shown before and after each line that has values.
    const CONTEXT_LINES: i64 = 2;
    let mut all = BTreeMap::<&str, BTreeMap<u32, String>>::new();
    for &(function, line) in &found.places {
        let file = found.functions[function as usize].file.as_str();
        if line <= 0 || file.is_empty() {
            continue;
        }
        for near in (line - CONTEXT_LINES).max(1)..=line + CONTEXT_LINES {
            if let (Some(text), Ok(number)) = (sources.line(file, near), u32::try_from(near)) {
                all.entry(file).or_default().insert(number, text);
            }
        }
    }
    all
}
