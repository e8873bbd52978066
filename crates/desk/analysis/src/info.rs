//! The report `info`: what a profile holds, what its numbers mean, and which part of it has no
//! symbols.

use heapprof_profile::{EarlyEnds, Unit, UnitFamily, recording_texts};

use heapprof_profile::is_for_machines;

use crate::comment::{self, DataBreakdown, ProfiledProcess};
use crate::coverage::{self, ManagedRuntime, RssBreakdown, UNSEEN_ALLOCATOR_PREFIX};
use crate::error::AnalysisError;
use crate::header::SampleType;
use crate::session::{AnalysisSession, read_estimate};
use crate::wrapper::{AllocationWrapper, wrappers};
use heapprof_totals::estimate::ValueEstimate;

/// A sample type with its totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeTotal {
    /// The sample type.
    pub sample_type: SampleType,
    /// The sum regardless of sign.
    pub total: i64,
    /// The signed sum.
    pub net: i64,
    /// Whether reports show this type by default.
    pub is_default: bool,
    /// The range of `net`; `None` if it is exact or not known.
    pub estimate: Option<ValueEstimate>,
}

/// A mapped file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingInfo {
    /// The first address.
    pub memory_start: u64,
    /// The address after the last one.
    pub memory_limit: u64,
    /// The offset in the file.
    pub file_offset: u64,
    /// The path of the file.
    pub filename: String,
    /// The build id of the file.
    pub build_id: String,
    /// The number of locations in the file.
    pub locations: i64,
    /// The number of locations in the file that have no function.
    pub unsymbolized: i64,
}

/// The report `info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfoReport {
    /// The profile's path or name.
    pub profile: String,
    /// The sample types, in the order of the profile.
    pub types: Vec<TypeTotal>,
    /// The time when the values were taken, in nanoseconds since 1970 UTC; 0 if unknown.
    pub time_nanos: i64,
    /// The duration of the recording, in nanoseconds; 0 if the profile shows only one moment.
    pub duration_nanos: i64,
    /// The time when the recording of heapprof's collector began, in nanoseconds since 1970 UTC; 0
    /// if unknown.
    pub start_nanos: i64,
    /// The quantity that the period counts, with its unit.
    pub period_type: SampleType,
    /// The sampling period, in the unit of `period_type`; 0 if unknown.
    pub period: i64,
    /// The number of distinct pairs of a stack and a label set that have a value.
    pub samples: i64,
    /// The number of locations.
    pub locations: i64,
    /// The number of locations that have no function.
    pub unsymbolized: i64,
    /// The number of functions.
    pub functions: i64,
    /// The mapped files.
    pub mappings: Vec<MappingInfo>,
    /// The RSS when the profile was dumped, with the heap in use then.
    pub rss: Option<RssBreakdown>,
    /// The highest RSS, with the heap's peak.
    pub peak_rss: Option<RssBreakdown>,
    /// A runtime that has a heap of its own besides the malloc heap.
    pub runtime: Option<ManagedRuntime>,
    /// The parts of the program's data, if the comments have them.
    pub account: Option<DataBreakdown>,
    /// The comments about allocators whose blocks were not recorded.
    pub unseen_allocators: Vec<String>,
    /// The number and the bytes of blocks whose free was missed: their address was allocated again
    /// before a free was recorded.
    pub unseen_frees: [u64; 2],
    /// The stacks that end before their outermost frame, by file.
    pub early_ends: Vec<EarlyEnds>,
    /// Functions that look like wrappers of malloc, except functions that `drop_frames` matches.
    pub wrappers: Vec<AllocationWrapper>,
    /// The comments.
    pub comments: Vec<String>,
    /// The regular expression for frames that reports cut.
    pub drop_frames: String,
    /// The regular expression for frames that reports keep even if `drop_frames` matches them.
    pub keep_frames: String,
    /// The address of a page that explains the profile.
    pub doc_url: String,
}

/// Reports the facts of the session's only profile. The session's question must have been made with
/// `TypeSelection::All` and without filters.
pub fn info(session: &AnalysisSession) -> Result<InfoReport, AnalysisError> {
    let mut info: InfoReport = session
        .rows(
            "SELECT name, time_nanos, duration_nanos, period_type, period_unit, period, \
             drop_frames, keep_frames, doc_url FROM profile WHERE id = 1",
            [],
            |row| {
                Ok(InfoReport {
                    profile: row.get(0)?,
                    time_nanos: row.get(1)?,
                    duration_nanos: row.get(2)?,
                    period_type: SampleType {
                        r#type: row.get(3)?,
                        unit: row.get(4)?,
                    },
                    period: row.get(5)?,
                    drop_frames: row.get(6)?,
                    keep_frames: row.get(7)?,
                    doc_url: row.get(8)?,
                    ..InfoReport::default()
                })
            },
        )?
        .into_iter()
        .next()
        .unwrap_or_default();
    let (_, default) = crate::header::sample_type(session, 1)?;
    let estimate = AnalysisSession::estimate_columns("t", "");
    info.types = session.rows(
        &format!(
            "SELECT s.type, s.unit, t.total, t.net, {estimate} FROM profile_total t \
             JOIN sample_type s ON s.id = t.type WHERE t.profile = 1 ORDER BY t.position"
        ),
        [],
        |row| {
            let sample_type = SampleType {
                r#type: row.get(0)?,
                unit: row.get(1)?,
            };
            Ok(TypeTotal {
                is_default: sample_type == default,
                sample_type,
                total: row.get(2)?,
                net: row.get(3)?,
                estimate: read_estimate(row, 4)?,
            })
        },
    )?;
    info.wrappers = wrappers(session, 1, &crate::Query::default())?;
    info.comments = comment::comments(session)?;
    let process = ProfiledProcess::new(&info.comments, info.time_nanos, info.duration_nanos);
    info.start_nanos = process.map_or(0, |process| process.start());
    let heap = ["inuse_space", "peak_space"].map(|name| heap_bytes(&info.types, name));
    [info.rss, info.peak_rss] = coverage::resident(&info.comments, heap);
    info.account = comment::take_data_breakdown(&mut info.comments);
    info.unseen_allocators = coverage::unseen_allocators(&info.comments);
    info.unseen_frees = recording_texts::unseen_frees(info.comments.iter().map(String::as_str));
    info.early_ends = EarlyEnds::from_comments(info.comments.iter().map(String::as_str));
    info.comments
        .retain(|text| !is_for_machines(text) && !is_shown_as_fact(text));
    // A location counts as symbolized if one of its lines has a function's name.
    let symbolized = "EXISTS (SELECT 1 FROM line n JOIN function f ON f.id = n.function WHERE \
                      n.location = l.id AND f.name != '' AND NOT (f.system_name = '' AND \
                      f.filename = '' AND f.name GLOB '?*+0x?*' AND f.name NOT GLOB \
                      '*+0x*[^0-9a-f]*'))";
    let unmapped = session.rows(
        &format!("SELECT count(*), ifnull(sum(NOT {symbolized}), 0) FROM location l"),
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    (info.locations, info.unsymbolized) = unmapped.first().copied().unwrap_or_default();
    let counts: std::collections::HashMap<i64, (i64, i64)> = session
        .rows(
            &format!(
                "SELECT l.mapping, count(*), ifnull(sum(NOT {symbolized}), 0) FROM location l \
                 WHERE l.mapping IS NOT NULL GROUP BY l.mapping"
            ),
            [],
            |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))),
        )?
        .into_iter()
        .collect();
    info.mappings = session.rows(
        "SELECT id, memory_start, memory_limit, file_offset, filename, build_id FROM mapping \
         ORDER BY id",
        [],
        |row| {
            let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)? as u64);
            let (locations, unsymbolized) = counts.get(&row.get(0)?).copied().unwrap_or_default();
            Ok(MappingInfo {
                memory_start: number(1)?,
                memory_limit: number(2)?,
                file_offset: number(3)?,
                filename: row.get(4)?,
                build_id: row.get(5)?,
                locations,
                unsymbolized,
            })
        },
    )?;
    info.runtime = coverage::unseen_runtime(
        info.mappings.iter().map(|m| m.filename.as_str()),
        &info.comments,
    );
    let count = |sql: &str| -> Result<i64, AnalysisError> {
        Ok(session
            .rows(sql, [], |row| row.get(0))?
            .first()
            .copied()
            .unwrap_or(0))
    };
    info.samples = count(
        "SELECT count(*) FROM (SELECT DISTINCT stack, label_set FROM sample WHERE profile = 1)",
    )?;
    info.functions = count("SELECT count(DISTINCT function) FROM line")?;
    Ok(info)
}

/// Whether the list of comments leaves a comment out, because another line of the report shows the
/// fact.
fn is_shown_as_fact(comment: &str) -> bool {
    comment.starts_with(UNSEEN_ALLOCATOR_PREFIX) || EarlyEnds::parse(comment).is_some()
}

/// Returns the total of the sample type `name`, converted to bytes; `None` if the profile lacks the
/// type, or if the unit is no unit of bytes.
fn heap_bytes(types: &[TypeTotal], name: &str) -> Option<i64> {
    let found = types.iter().find(|t| t.sample_type.r#type == name)?;
    let unit = Unit::parse(&found.sample_type.unit).filter(|u| u.family == UnitFamily::Bytes)?;
    found.total.checked_mul(unit.factor)
}
