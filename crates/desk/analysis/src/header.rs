//! The header that every report begins with: its sample type, its total, and what the filters left
//! out.

use crate::error::AnalysisError;
use crate::question::{is_counted, is_peak};
use crate::session::{AnalysisSession, ESTIMATE_COLUMN_COUNT, read_estimate, read_spread};
use heapprof_profile::{IN_USE, PEAK, ValueType};
use heapprof_totals::estimate::{SumSpread, ValueEstimate, period_in_bytes};
use heapprof_totals::note::FilterNote;
use heapprof_totals::query::{Granularity, Query};

/// The name and the unit of a sample type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleType {
    /// The name of the type, such as `inuse_space`.
    pub r#type: String,
    /// The unit of the type, such as `bytes`.
    pub unit: String,
}

/// The header of a report.
#[derive(Clone, Debug, Default)]
pub struct ReportHeader {
    /// The profile's path or name.
    pub profile: String,
    /// The sample type that is reported.
    pub sample_type: SampleType,
    /// The base of percentages: the sum of all values regardless of sign. Filters change it only if
    /// the query asks for relative percentages.
    pub total: i64,
    /// The signed sum of the samples that the filters kept. The rows add up to this sum.
    pub net: i64,
    /// The signed sum of the values of the samples that the filters left out.
    pub left_out: i64,
    /// The filters, as `option=value`.
    pub filters: Vec<String>,
    /// Two sums regardless of sign, if the query has `own_code`: library memory that counts for a
    /// caller in the program itself, and library memory without such a caller.
    pub folded: Option<[i128; 2]>,
    /// The granularity of the rows.
    pub granularity: Granularity,
    /// Notes that the user should see.
    pub notes: Vec<FilterNote>,
    /// Other sample types that have values, each with its type, unit and total. Empty if the
    /// reported type has values.
    pub elsewhere: Vec<(String, String, i64)>,
    /// The number of bytes in use at the end, if the report shows the peak because the profile's
    /// default is the peak.
    pub in_use_at_end: Option<i64>,
    /// The mean number of bytes between two samples, if the values are estimates.
    pub sampled: Option<i64>,
    /// Whether the profile says that every allocation was recorded.
    pub is_exact: bool,
    /// The range of the total; `None` if it is not known. If values have both signs, this is the
    /// range of the signed sum.
    pub estimate: Option<ValueEstimate>,
    /// The range of `net`, if it is known.
    pub net_estimate: Option<ValueEstimate>,
    /// The spread of `net`.
    pub(crate) spread: Option<SumSpread>,
}

/// Words in the names of sample types whose values are memory.
const MEMORY_WORDS: [&str; 6] = ["inuse", "alloc", "peak", "temporary", "space", "objects"];

impl ReportHeader {
    /// Whether the values are memory, or counts of its pieces. They may also be processor time,
    /// waits or threads.
    pub fn is_about_memory(&self) -> bool {
        let r#type = &self.sample_type.r#type;
        self.sample_type.unit == "bytes" || MEMORY_WORDS.iter().any(|word| r#type.contains(word))
    }

    /// Whether the values are peak values of a sampled profile. Their range can't be known, because
    /// the peak is the moment at which the estimate was largest.
    pub fn is_sampled_peak(&self) -> bool {
        self.sampled.is_some() && is_peak(&self.sample_type.r#type)
    }
}

/// Returns the sample type that the question asks for: its number in the session, and its name and
/// unit.
pub(crate) fn sample_type(
    session: &AnalysisSession,
    profile: i64,
) -> Result<(i64, SampleType), AnalysisError> {
    let types = session.rows(
        "SELECT s.id, s.type, s.unit FROM profile_total t \
         JOIN sample_type s ON s.id = t.type WHERE t.profile = ?1 ORDER BY t.position",
        [profile],
        |row| {
            let sample_type = SampleType {
                r#type: row.get(1)?,
                unit: row.get(2)?,
            };
            Ok((row.get::<_, i64>(0)?, sample_type))
        },
    )?;
    let part = &session.require_question()?.parts[profile as usize - 1];
    let id = part.types[part.column] as i64 + 1;
    let found = types.into_iter().find(|t| t.0 == id);
    found.ok_or_else(|| AnalysisError::Sql("no totals for the sample type".to_string()))
}

/// Returns a profile's name, its sampling period in bytes if it was sampled by bytes, and whether
/// it says that every allocation was recorded.
fn name_and_period(
    session: &AnalysisSession,
    profile: i64,
) -> Result<(String, Option<i64>, bool), AnalysisError> {
    let found = session.rows(
        "SELECT name, period_type, period_unit, period FROM profile WHERE id = ?1",
        [profile],
        |row| {
            let by_space: String = row.get(1)?;
            let unit: String = row.get(2)?;
            let period: i64 = row.get(3)?;
            let sampled = period_in_bytes(&by_space, &unit, period);
            Ok((row.get(0)?, sampled, period == 1))
        },
    )?;
    Ok(found.into_iter().next().unwrap_or_default())
}

/// Returns a profile's sampling period in bytes; `None` if the profile was not sampled by bytes.
pub(crate) fn period(
    session: &AnalysisSession,
    profile: i64,
) -> Result<Option<i64>, AnalysisError> {
    Ok(name_and_period(session, profile)?.1)
}

/// Returns the header of a report on one profile, and the number of its sample type.
pub(crate) fn header(
    session: &AnalysisSession,
    profile: i64,
    query: &Query,
) -> Result<(ReportHeader, i64), AnalysisError> {
    let (r#type, sample_type) = sample_type(session, profile)?;
    let (whole, of_kept) = (
        AnalysisSession::estimate_columns("t", ""),
        AnalysisSession::estimate_columns("t", "kept_"),
    );
    let known = AnalysisSession::spread_columns("t", "kept_");
    let totals = session.rows(
        &format!(
            "SELECT total, net, kept_total, kept_net, {whole}, {of_kept}, {known} \
             FROM profile_total t WHERE profile = ?1 AND type = ?2"
        ),
        [profile, r#type],
        |row| {
            let sums: [i64; 4] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
            let of_whole = sums.len();
            let of_kept = of_whole + ESTIMATE_COLUMN_COUNT;
            let of_spread = of_kept + ESTIMATE_COLUMN_COUNT;
            let estimates = [read_estimate(row, of_whole)?, read_estimate(row, of_kept)?];
            Ok((sums, estimates, read_spread(row, of_spread)?))
        },
    )?;
    let (sums, [estimate, net_estimate], spread) = totals.first().copied().unwrap_or_default();
    let [total, net, kept_total, kept_net] = sums;
    let (name, sampled, is_exact) = name_and_period(session, profile)?;
    let sampled = sampled.filter(|_| !is_counted(&sample_type.r#type));
    let elsewhere = match kept_total {
        0 => elsewhere(session, profile)?,
        _ => Vec::new(),
    };
    let in_use_at_end = match query.sample_type.is_none() && sample_type.r#type == PEAK {
        true => in_use_total(session, profile)?,
        false => None,
    };
    let header = ReportHeader {
        profile: name,
        sample_type,
        total: if query.relative_percentages {
            kept_total
        } else {
            total
        },
        net: kept_net,
        // Both numbers are sums of the same values, and `total` bounds them.
        left_out: net - kept_net,
        filters: query.filters.active_options(),
        folded: folded_values(session, profile, query),
        granularity: query.granularity,
        notes: session.notes(),
        elsewhere,
        in_use_at_end,
        sampled,
        is_exact,
        estimate: match query.relative_percentages {
            true => net_estimate,
            false => estimate,
        },
        net_estimate,
        spread,
    };
    Ok((header, r#type))
}

/// Returns the two sums of [`ReportHeader::folded`] for a profile, if the query asks for them.
fn folded_values(session: &AnalysisSession, profile: i64, query: &Query) -> Option<[i128; 2]> {
    let question = session.question.as_ref().filter(|_| query.own_code)?;
    let part = &question.parts[profile as usize - 1];
    Some(part.view.fold_sums(&part.profile.samples, part.column))
}

/// Returns the number of bytes in use in a profile; `None` if the profile has no such values in the
/// unit of the report, or if their sum does not fit in 64 bits.
fn in_use_total(session: &AnalysisSession, profile: i64) -> Result<Option<i64>, AnalysisError> {
    let part = &session.require_question()?.parts[profile as usize - 1];
    let types = &part.profile.sample_type;
    let unit = types[part.column].unit;
    let is_in_use = |t: &ValueType| part.profile.text(t.r#type) == IN_USE && t.unit == unit;
    let total = types
        .iter()
        .position(is_in_use)
        .and_then(|at| heapprof_totals::totals::whole_totals(&part.profile, &[at]).ok());
    Ok(total.map(|totals| totals[0].net))
}

/// Returns the sample types that have a total other than 0 in a profile, each with its name, unit
/// and total. Returns none if a total does not fit in 64 bits.
fn elsewhere(
    session: &AnalysisSession,
    profile: i64,
) -> Result<Vec<(String, String, i64)>, AnalysisError> {
    let question = session.require_question()?;
    let part = &question.parts[profile as usize - 1];
    let all: Vec<usize> = (0..part.profile.sample_type.len()).collect();
    // A type whose total overflows has values, but no total to name.
    let Ok(totals) = heapprof_totals::totals::whole_totals(&part.profile, &all) else {
        return Ok(Vec::new());
    };
    let named = totals.into_iter().zip(&part.types).map(|(total, &t)| {
        let (name, unit) = question.types[t].clone();
        (name, unit, total.total)
    });
    Ok(named.filter(|t| t.2 != 0).collect())
}
