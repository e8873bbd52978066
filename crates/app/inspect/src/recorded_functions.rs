//! The functions that have the memory of a recorded program, with the program's own code.

use anyhow::{Result, bail};
use heapprof_analysis::{
    AnalysisSession, ProfileQuestion, Query, QuestionSource, TypeSelection, top::top,
};
use heapprof_profile::{HeapHistory, Unit, UnitFamily};
use heapprof_report::{PartHolder, estimate_share};

/// Maximum number of functions.
const MAX_FUNCTIONS: usize = 1000;

/// The functions of a profile with the most bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedFunctions {
    /// The functions, the largest first.
    pub(crate) holders: Vec<PartHolder>,
    /// The bytes of all functions.
    pub(crate) bytes: u64,
    /// The mean number of bytes between two samples; 0 if all allocations are recorded.
    pub(crate) period: u64,
    /// How far the true bytes may be from these, as in `±3%`; empty if they are exact or if that
    /// is not known.
    pub(crate) error: String,
    /// The name of the values.
    pub(crate) sample_type: String,
    /// Bytes that the heap grew in a minute, if the recording has its history.
    pub(crate) growth: Option<i64>,
}

impl RecordedFunctions {
    /// Finds the functions of a profile by a sample type, or by the profile's default.
    pub(crate) fn new(source: QuestionSource, sample_type: Option<&str>) -> Result<Self> {
        let history = HeapHistory::from_profile(&source.profile);
        let growth = history.and_then(|history| history.growth_per_minute());
        let query = Query {
            sample_type: sample_type.map(str::to_string),
            limit: Some(MAX_FUNCTIONS),
            own_code: true,
            ..Query::default()
        };
        let question = ProfileQuestion::new(vec![source], &query, TypeSelection::Requested)?;
        let session = AnalysisSession::new(question)?;
        let found = top(&session, 1, &query, false)?;
        let values = &found.header.sample_type;
        let unit = Unit::parse(&values.unit).filter(|unit| unit.family == UnitFamily::Bytes);
        let Some(unit) = unit else {
            bail!(
                "its values ({}) are in {:?}, not in bytes",
                values.r#type,
                values.unit
            );
        };
        let bytes = |value: i64| {
            let value = u64::try_from(value).unwrap_or(0);
            value.saturating_mul(unit.factor as u64)
        };
        let rows = found.rows.iter().filter(|row| row.flat > 0);
        let holders = rows.map(|row| PartHolder {
            bytes: bytes(row.flat),
            name: row.place.function.clone(),
            place: file_of(row.place.shown_file(), row.place.line),
            ..PartHolder::default()
        });
        let estimate = found.header.net_estimate.as_ref();
        Ok(Self {
            holders: holders.collect(),
            bytes: bytes(found.header.net),
            period: found
                .header
                .sampled
                .and_then(|of| u64::try_from(of).ok())
                .unwrap_or(0),
            error: estimate_share(found.header.net, estimate),
            sample_type: found.header.sample_type.r#type.clone(),
            growth,
        })
    }
}

/// Returns the last part of a file's path, with the line if it is known.
fn file_of(file: Option<&str>, line: Option<i64>) -> String {
    let file = file.unwrap_or_default();
    let file = file.rsplit('/').next().unwrap_or(file);
    match line.filter(|&line| line > 0 && !file.is_empty()) {
        Some(line) => format!("{file}:{line}"),
        None => file.to_string(),
    }
}
