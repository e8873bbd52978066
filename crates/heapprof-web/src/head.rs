//! Writes the head of a container: names, totals and everything else that is no column, as JSON.

mod parts;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::check::refers;
use crate::columns::{Place, exact};
use crate::{Error, Report};
use parts::{Estimate, Functions, Histograms, History, LeftOut, Moment, SeriesPeak, Trend};

const SCHEMA: &str = "heapprof.report.v1";

/// The fields in the order in which they are written.
#[derive(Serialize)]
struct Head<'a> {
    schema: &'static str,
    program: &'a str,
    tool: &'a str,
    period: i64,
    default: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<usize>,
    nodes: usize,
    types: Vec<(&'a str, &'a str)>,
    snapshots: Vec<Moment<'a>>,
    own_code: bool,
    func: Functions<'a>,
    file: &'a [String],
    module: Vec<&'a str>,
    lib: Vec<u8>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    mapped: &'a [String],
    left_out: LeftOut<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<Histograms<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<History<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<SeriesPeak>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    growth: BTreeMap<&'a str, Vec<Trend>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    growth_own_code: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sql: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    commands: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    source: &'a BTreeMap<u32, BTreeMap<u32, String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    estimate: BTreeMap<&'a str, Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forks: Option<&'a serde_json::Value>,
    columns: &'a [Place],
}

/// Returns the head of a report as JSON.
pub(crate) fn json(report: &Report, columns: &[Place]) -> Result<Vec<u8>, Error> {
    let is_type = |name: &str| report.types.iter().any(|known| known.name == name);
    let named = report.estimates.keys().chain(report.growth.keys());
    if let Some(name) = named
        .chain([&report.default_type])
        .find(|name| !is_type(name))
    {
        return Err(Error::NoSuchType(name.clone()));
    }
    let last = report
        .snapshots
        .len()
        .checked_sub(1)
        .ok_or(Error::NoSnapshot)?;
    if let Some(base) = report.base {
        refers("snapshot", last, "snapshot", base, report.snapshots.len())?;
    }
    for file in report.source.keys() {
        refers("source", 0, "file", *file as usize, report.files.len())?;
    }
    exact("the period", report.period)?;
    let head = Head {
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
        snapshots: Moment::all(report)?,
        own_code: report.own_code,
        func: Functions::of(report)?,
        file: &report.files,
        module: report.modules.iter().map(|module| &*module.name).collect(),
        lib: report
            .modules
            .iter()
            .map(|module| module.is_library.into())
            .collect(),
        mapped: &report.mapped,
        left_out: LeftOut::of(report)?,
        sizes: report.sizes.as_ref().map(Histograms::of).transpose()?,
        history: report.history.as_ref().map(History::of).transpose()?,
        peak: report.peak.map(SeriesPeak::of).transpose()?,
        growth: Trend::all(report)?,
        growth_own_code: report.growth_own_code,
        sql: &report.sql,
        commands: &report.commands,
        source: &report.source,
        estimate: Estimate::all(report)?,
        forks: report.forks.as_ref(),
        columns,
    };
    Ok(serde_json::to_vec(&head).expect("texts, numbers and lists are JSON"))
}
