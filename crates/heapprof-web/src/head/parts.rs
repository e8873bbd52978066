//! The parts of a container's head, each made of rows that were checked.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::check::{length, refers};
use crate::columns::{exact, small};
use crate::{Curve, Error, Report, Sizes};

#[derive(Serialize)]
pub(super) struct Moment<'a> {
    name: &'a str,
    t: i64,
    ms: f64,
    period: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_rss: Option<i64>,
    total: &'a [i64],
}

#[derive(Serialize)]
pub(super) struct Functions<'a> {
    name: Vec<&'a str>,
    file: Vec<u32>,
    module: Vec<u32>,
    /// The mapped file, or -1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mapped: Vec<i64>,
    start: Vec<u32>,
}

#[derive(Serialize)]
pub(super) struct LeftOut<'a> {
    nodes: u64,
    value: &'a [i64],
}

#[derive(Serialize)]
pub(super) struct Histograms<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    inuse: Option<&'a [i64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alloc: Option<&'a [i64]>,
    exact: bool,
}

#[derive(Serialize)]
pub(super) struct History<'a> {
    t: &'a [f64],
    inuse: &'a [i64],
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<&'a [i64]>,
    /// Bytes, or -1 where they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    rss: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<Moving>,
}

#[derive(Serialize)]
struct Moving {
    t: f64,
    bytes: i64,
}

#[derive(Serialize)]
pub(super) struct SeriesPeak {
    bytes: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    t: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct Trend {
    f: u32,
    verdict: &'static str,
    slope: f64,
    r2: f64,
    grew: u64,
    of: u64,
    first: i64,
    last: i64,
    max: i64,
}

#[derive(Serialize)]
pub(super) struct Estimate {
    total: f64,
}

impl<'a> Moment<'a> {
    pub(super) fn all(report: &'a Report) -> Result<Vec<Self>, Error> {
        let one = |snapshot: &'a crate::Snapshot| {
            length(
                "the totals of a snapshot",
                snapshot.total.len(),
                report.types.len(),
            )?;
            Ok(Self {
                name: &snapshot.name,
                t: exact("a time", snapshot.time_ms)?,
                ms: finite("a time", snapshot.since_ms)?,
                period: exact("the period", snapshot.period)?,
                rss: each("a resident set", snapshot.rss)?,
                peak_rss: each("a resident set", snapshot.peak_rss)?,
                total: exact_list("a total", &snapshot.total)?,
            })
        };
        report.snapshots.iter().map(one).collect()
    }
}

impl<'a> Functions<'a> {
    pub(super) fn of(report: &'a Report) -> Result<Self, Error> {
        let functions = &report.functions;
        let mut start = Vec::with_capacity(functions.len());
        for (i, function) in functions.iter().enumerate() {
            let (file, module) = (function.file as usize, function.module as usize);
            refers("function", i, "file", file, report.files.len())?;
            refers("function", i, "module", module, report.modules.len())?;
            if let Some(mapped) = function.mapped {
                refers(
                    "function",
                    i,
                    "mapped file",
                    mapped as usize,
                    report.mapped.len(),
                )?;
            }
            start.push(small("a line", function.start_line)?);
        }
        let mapped = functions.iter().map(|is| is.mapped.map_or(-1, i64::from));
        Ok(Self {
            name: functions.iter().map(|function| &*function.name).collect(),
            file: functions.iter().map(|function| function.file).collect(),
            module: functions.iter().map(|function| function.module).collect(),
            mapped: mapped.filter(|_| !report.mapped.is_empty()).collect(),
            start,
        })
    }
}

impl<'a> LeftOut<'a> {
    pub(super) fn of(report: &'a Report) -> Result<Self, Error> {
        let crate::LeftOut { nodes, values } = &report.left_out;
        if !values.is_empty() {
            length(
                "the list of what was left out",
                values.len(),
                report.types.len(),
            )?;
        }
        Ok(Self {
            nodes: exact_count(*nodes)?,
            value: exact_list("what was left out", values)?,
        })
    }
}

impl<'a> Histograms<'a> {
    pub(super) fn of(sizes: &'a Sizes) -> Result<Self, Error> {
        let list = |list: &'a Option<Vec<i64>>| match list {
            Some(list) => exact_list("a count of sizes", list).map(Some),
            None => Ok(None),
        };
        Ok(Self {
            inuse: list(&sizes.inuse)?,
            alloc: list(&sizes.alloc)?,
            exact: sizes.is_exact,
        })
    }
}

impl<'a> History<'a> {
    pub(super) fn of(curve: &'a Curve) -> Result<Self, Error> {
        let count = curve.time_ms.len();
        let list = |what, list: &'a [i64]| {
            length(what, list.len(), count)?;
            exact_list(what, list)
        };
        for time in &curve.time_ms {
            finite("a time", *time)?;
        }
        let rss = curve.rss.as_ref().map(|rss| {
            length("the curve of the resident set", rss.len(), count)?;
            let known = rss.iter().map(|rss| each("a resident set", *rss));
            known
                .map(|rss| Ok(rss?.unwrap_or(-1)))
                .collect::<Result<_, Error>>()
        });
        let peak = curve.peak.map(|peak| {
            Ok::<_, Error>(Moving {
                t: finite("a time", peak.time_ms)?,
                bytes: exact("the peak", peak.bytes)?,
            })
        });
        let objects = curve.objects.as_deref();
        Ok(Self {
            t: &curve.time_ms,
            inuse: list("the curve of bytes", &curve.inuse)?,
            objects: objects
                .map(|all| list("the curve of objects", all))
                .transpose()?,
            rss: rss.transpose()?,
            peak: peak.transpose()?,
        })
    }
}

impl SeriesPeak {
    pub(super) fn of(peak: crate::SeriesPeak) -> Result<Self, Error> {
        Ok(Self {
            bytes: exact("the peak", peak.bytes)?,
            t: peak.since_ms.map(|t| finite("a time", t)).transpose()?,
        })
    }
}

impl Trend {
    pub(super) fn all(report: &Report) -> Result<BTreeMap<&str, Vec<Self>>, Error> {
        let count = report.functions.len();
        let one = |(i, row): (usize, &crate::Growth)| {
            refers("growth", i, "function", row.function as usize, count)?;
            Ok(Self {
                f: row.function,
                verdict: row.verdict,
                slope: finite("a slope", row.slope)?,
                r2: finite("a fit", row.r2)?,
                grew: exact_count(row.grew)?,
                of: exact_count(row.steps)?,
                first: exact("a first value", row.first)?,
                last: exact("a last value", row.last)?,
                max: exact("a largest value", row.max)?,
            })
        };
        let all = report.growth.iter();
        all.map(|(name, rows)| {
            let rows: Result<_, Error> = rows.iter().enumerate().map(one).collect();
            Ok((name.as_str(), rows?))
        })
        .collect()
    }
}

impl Estimate {
    pub(super) fn all(report: &Report) -> Result<BTreeMap<&str, Self>, Error> {
        let all = report.estimates.iter();
        all.map(|(name, error)| {
            let total = finite("an estimate", *error)?;
            Ok((name.as_str(), Self { total }))
        })
        .collect()
    }
}

fn exact_list<'a>(what: &'static str, list: &'a [i64]) -> Result<&'a [i64], Error> {
    list.iter()
        .try_for_each(|value| exact(what, *value).map(drop))?;
    Ok(list)
}

fn exact_count(count: u64) -> Result<u64, Error> {
    let value = i64::try_from(count).map_err(|_| Error::TooLarge {
        what: "a count",
        value: count.into(),
    })?;
    exact("a count", value).map(|_| count)
}

fn each(what: &'static str, value: Option<i64>) -> Result<Option<i64>, Error> {
    value.map(|value| exact(what, value)).transpose()
}

fn finite(what: &'static str, value: f64) -> Result<f64, Error> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(Error::NotFinite { what })
}
