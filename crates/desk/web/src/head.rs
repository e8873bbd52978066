//! Writes the head of a container as JSON: names, totals and everything else that is not a column.

mod parts;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::check::check_index;
use crate::columns::{ColumnPlace, check_exact};
use crate::{PackError, WebReport};
use parts::{
    EstimateJson, FunctionsJson, GrowthJson, HistoryJson, ImportsJson, LeftOutJson, SeriesPeakJson,
    SizeHistogramsJson, SnapshotJson,
};

const SCHEMA: &str = "heapprof.report.v1";

/// The head of a container. Fields are written in this order.
#[derive(Serialize)]
struct ReportHead<'a> {
    schema: &'static str,
    program: &'a str,
    tool: &'a str,
    period: i64,
    default: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<usize>,
    nodes: usize,
    types: Vec<(&'a str, &'a str)>,
    snapshots: Vec<SnapshotJson<'a>>,
    own_code: bool,
    func: FunctionsJson<'a>,
    file: &'a [String],
    module: Vec<&'a str>,
    lib: Vec<u8>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    mapped: &'a [String],
    left_out: LeftOutJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<SizeHistogramsJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<HistoryJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<SeriesPeakJson>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    growth: BTreeMap<&'a str, Vec<GrowthJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    growth_own_code: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sql: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    commands: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    source: &'a BTreeMap<u32, BTreeMap<u32, String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    estimate: BTreeMap<&'a str, EstimateJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    imports: Option<ImportsJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forks: Option<&'a serde_json::Value>,
    columns: &'a [ColumnPlace],
}

/// Returns the head of a report as JSON.
pub(crate) fn json(report: &WebReport, columns: &[ColumnPlace]) -> Result<Vec<u8>, PackError> {
    let is_type = |name: &str| report.types.iter().any(|known| known.name == name);
    let named = report.estimates.keys().chain(report.growth.keys());
    if let Some(name) = named
        .chain([&report.default_type])
        .find(|name| !is_type(name))
    {
        return Err(PackError::NoSuchType(name.clone()));
    }
    let last = report
        .snapshots
        .len()
        .checked_sub(1)
        .ok_or(PackError::NoSnapshot)?;
    if let Some(base) = report.base {
        check_index("snapshot", last, "snapshot", base, report.snapshots.len())?;
    }
    for file in report.source.keys() {
        check_index("source", 0, "file", *file as usize, report.files.len())?;
    }
    check_exact("the period", report.period)?;
    let head = ReportHead {
        schema: SCHEMA,
        program: &report.program,
        tool: &report.tool,
        period: report.period,
        default: &report.default_type,
        base: report.base,
        nodes: report.nodes.len(),
        types: report
            .types
            .iter()
            .map(|is| (&*is.name, &*is.unit))
            .collect(),
        snapshots: SnapshotJson::all(report)?,
        own_code: report.own_code,
        func: FunctionsJson::from_report(report)?,
        file: &report.files,
        module: report.modules.iter().map(|module| &*module.name).collect(),
        lib: report
            .modules
            .iter()
            .map(|module| module.is_library.into())
            .collect(),
        mapped: &report.mapped,
        left_out: LeftOutJson::from_report(report)?,
        sizes: report
            .sizes
            .as_ref()
            .map(SizeHistogramsJson::from_sizes)
            .transpose()?,
        history: report
            .history
            .as_ref()
            .map(HistoryJson::from_curve)
            .transpose()?,
        peak: report.peak.map(SeriesPeakJson::from_peak).transpose()?,
        growth: GrowthJson::all(report)?,
        growth_own_code: report.growth_own_code,
        sql: &report.sql,
        commands: &report.commands,
        source: &report.source,
        estimate: EstimateJson::all(report)?,
        imports: report
            .imports
            .as_ref()
            .map(|imports| ImportsJson::from_imports(report, imports))
            .transpose()?,
        forks: report.forks.as_ref(),
        columns,
    };
    Ok(serde_json::to_vec(&head).expect("texts, numbers and lists are JSON"))
}
