//! The parts of a container's head, which are made from checked rows.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::check::{check_index, check_length};
use crate::columns::{check_exact, check_small};
use crate::{HistoryCurve, PackError, PageImports, PageSizeHistograms, WebReport};

#[derive(Serialize)]
pub(super) struct SnapshotJson<'a> {
    name: &'a str,
    t: i64,
    ms: f64,
    period: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_rss: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peak_parts: Vec<(&'a str, &'a str, i64)>,
    total: &'a [i64],
    #[serde(skip_serializing_if = "<[Option<f64>]>::is_empty")]
    error: &'a [Option<f64>],
}

#[derive(Serialize)]
pub(super) struct FunctionsJson<'a> {
    name: Vec<&'a str>,
    file: Vec<u32>,
    module: Vec<u32>,
    /// The index of each function's mapped file; -1 if it has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mapped: Vec<i64>,
    start: Vec<u32>,
}

#[derive(Serialize)]
pub(super) struct LeftOutJson<'a> {
    nodes: u64,
    value: &'a [i64],
}

#[derive(Serialize)]
pub(super) struct SizeHistogramsJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    inuse: Option<&'a [i64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alloc: Option<&'a [i64]>,
    exact: bool,
}

#[derive(Serialize)]
pub(super) struct HistoryJson<'a> {
    t: &'a [f64],
    inuse: &'a [i64],
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<&'a [i64]>,
    /// The resident set in bytes at each moment; -1 if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    rss: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<HistoryPeakJson>,
}

#[derive(Serialize)]
pub(super) struct ImportsJson<'a> {
    machinery: &'a [u32],
    modules: &'a [[u32; 3]],
}

#[derive(Serialize)]
struct HistoryPeakJson {
    t: f64,
    bytes: i64,
}

#[derive(Serialize)]
pub(super) struct SeriesPeakJson {
    bytes: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    t: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct GrowthJson {
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
pub(super) struct EstimateJson {
    total: f64,
}

impl<'a> SnapshotJson<'a> {
    pub(super) fn all(report: &'a WebReport) -> Result<Vec<Self>, PackError> {
        let one = |snapshot: &'a crate::PageSnapshot| {
            check_length(
                "the totals of a snapshot",
                snapshot.total.len(),
                report.types.len(),
            )?;
            Ok(Self {
                name: &snapshot.name,
                t: check_exact("a time", snapshot.time_ms)?,
                ms: check_finite("a time", snapshot.since_ms)?,
                period: check_exact("the period", snapshot.period)?,
                rss: check_optional("a resident set", snapshot.rss)?,
                peak_rss: check_optional("a resident set", snapshot.peak_rss)?,
                peak_parts: {
                    let parts = snapshot.peak_parts.iter().map(|part| {
                        let bytes = check_exact("a part of the memory", part.bytes)?;
                        Ok((&*part.kind, &*part.name, bytes))
                    });
                    parts.collect::<Result<_, PackError>>()?
                },
                total: exact_list("a total", &snapshot.total)?,
                error: {
                    for &error in snapshot.errors.iter().flatten() {
                        check_finite("an error", error)?;
                    }
                    &snapshot.errors
                },
            })
        };
        report.snapshots.iter().map(one).collect()
    }
}

impl<'a> FunctionsJson<'a> {
    pub(super) fn from_report(report: &'a WebReport) -> Result<Self, PackError> {
        let functions = &report.functions;
        let mut start = Vec::with_capacity(functions.len());
        for (i, function) in functions.iter().enumerate() {
            let (file, module) = (function.file as usize, function.module as usize);
            check_index("function", i, "file", file, report.files.len())?;
            check_index("function", i, "module", module, report.modules.len())?;
            if let Some(mapped) = function.mapped {
                check_index(
                    "function",
                    i,
                    "mapped file",
                    mapped as usize,
                    report.mapped.len(),
                )?;
            }
            start.push(check_small("a line", function.start_line)?);
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

impl<'a> LeftOutJson<'a> {
    pub(super) fn from_report(report: &'a WebReport) -> Result<Self, PackError> {
        let crate::OmittedNodes { nodes, values } = &report.left_out;
        if !values.is_empty() {
            check_length(
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

impl<'a> SizeHistogramsJson<'a> {
    pub(super) fn from_sizes(sizes: &'a PageSizeHistograms) -> Result<Self, PackError> {
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

impl<'a> HistoryJson<'a> {
    pub(super) fn from_curve(curve: &'a HistoryCurve) -> Result<Self, PackError> {
        let count = curve.time_ms.len();
        let list = |what, list: &'a [i64]| {
            check_length(what, list.len(), count)?;
            exact_list(what, list)
        };
        for time in &curve.time_ms {
            check_finite("a time", *time)?;
        }
        let rss = curve.rss.as_ref().map(|rss| {
            check_length("the curve of the resident set", rss.len(), count)?;
            let known = rss.iter().map(|rss| check_optional("a resident set", *rss));
            known
                .map(|rss| Ok(rss?.unwrap_or(-1)))
                .collect::<Result<_, PackError>>()
        });
        let peak = curve.peak.map(|peak| {
            Ok::<_, PackError>(HistoryPeakJson {
                t: check_finite("a time", peak.time_ms)?,
                bytes: check_exact("the peak", peak.bytes)?,
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

impl<'a> ImportsJson<'a> {
    pub(super) fn from_imports(
        report: &WebReport,
        imports: &'a PageImports,
    ) -> Result<Self, PackError> {
        for (row, function) in imports.machinery.iter().enumerate() {
            let count = report.functions.len();
            check_index("import", row, "function", *function as usize, count)?;
        }
        for (row, frames) in imports.modules.iter().enumerate() {
            for frame in frames {
                let count = report.frames.len();
                check_index("import", row, "frame", *frame as usize, count)?;
            }
        }
        Ok(Self {
            machinery: &imports.machinery,
            modules: &imports.modules,
        })
    }
}

impl SeriesPeakJson {
    pub(super) fn from_peak(peak: crate::PageSeriesPeak) -> Result<Self, PackError> {
        Ok(Self {
            bytes: check_exact("the peak", peak.bytes)?,
            t: peak
                .since_ms
                .map(|t| check_finite("a time", t))
                .transpose()?,
        })
    }
}

impl GrowthJson {
    pub(super) fn all(report: &WebReport) -> Result<BTreeMap<&str, Vec<Self>>, PackError> {
        let count = report.functions.len();
        let one = |(i, row): (usize, &crate::PageGrowth)| {
            check_index("growth", i, "function", row.function as usize, count)?;
            Ok(Self {
                f: row.function,
                verdict: row.verdict,
                slope: check_finite("a slope", row.slope)?,
                r2: check_finite("a fit", row.r2)?,
                grew: exact_count(row.grew)?,
                of: exact_count(row.steps)?,
                first: check_exact("a first value", row.first)?,
                last: check_exact("a last value", row.last)?,
                max: check_exact("a largest value", row.max)?,
            })
        };
        let all = report.growth.iter();
        all.map(|(name, rows)| {
            let rows: Result<_, PackError> = rows.iter().enumerate().map(one).collect();
            Ok((name.as_str(), rows?))
        })
        .collect()
    }
}

impl EstimateJson {
    pub(super) fn all(report: &WebReport) -> Result<BTreeMap<&str, Self>, PackError> {
        let all = report.estimates.iter();
        all.map(|(name, error)| {
            let total = check_finite("an estimate", *error)?;
            Ok((name.as_str(), Self { total }))
        })
        .collect()
    }
}

fn exact_list<'a>(what: &'static str, list: &'a [i64]) -> Result<&'a [i64], PackError> {
    list.iter()
        .try_for_each(|value| check_exact(what, *value).map(drop))?;
    Ok(list)
}

fn exact_count(count: u64) -> Result<u64, PackError> {
    let value = i64::try_from(count).map_err(|_| PackError::TooLarge {
        what: "a count",
        value: count.into(),
    })?;
    check_exact("a count", value).map(|_| count)
}

fn check_optional(what: &'static str, value: Option<i64>) -> Result<Option<i64>, PackError> {
    value.map(|value| check_exact(what, value)).transpose()
}

fn check_finite(what: &'static str, value: f64) -> Result<f64, PackError> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(PackError::NotFinite { what })
}
