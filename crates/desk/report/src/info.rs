//! The report `info`: the facts about a profile, one on each line.

use heapprof_analysis::{
    comment::DataBreakdown,
    coverage::RssBreakdown,
    info::{InfoReport, MappingInfo},
    stats::StatsReport,
};
use serde_json::{Value, json};

use crate::coverage::{beside_heap, early_ends_in, unseen_frees};
use crate::error::ReportError;
use crate::json;
use crate::measure::{UnitFormatter, percent, plural, time_utc};
use crate::next::wrapper_text;
use crate::range;
use crate::stats::stats_document;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// Writes the report `info`. The JSON also has the report `stats`.
pub fn info(
    info: &InfoReport,
    stats: Option<&StatsReport>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    match style.format {
        ReportFormat::Json => {
            let mut document = document(info);
            if let Some(stats) = stats {
                document["stats"] = stats_document(stats);
            }
            json::text(document)
        }
        ReportFormat::Csv => {
            let mut table =
                ReportTable::new(&[("fact", ColumnAlign::Left), ("value", ColumnAlign::Left)]);
            for (fact, value) in facts(info, style)? {
                table.row(vec![fact, value]);
            }
            table.render(style)
        }
        ReportFormat::Markdown => {
            let mut table =
                ReportTable::new(&[("fact", ColumnAlign::Left), ("value", ColumnAlign::Left)]);
            for (fact, value) in facts(info, style)? {
                table.row(vec![fact, value]);
            }
            table.render(style)
        }
        ReportFormat::Text => {
            let mut text = String::new();
            for (fact, value) in facts(info, style)? {
                text.push_str(&format!("{fact:<16} {}\n", printable(&value)));
            }
            Ok(text)
        }
    }
}

fn facts(info: &InfoReport, style: &ReportStyle) -> Result<Vec<(String, String)>, ReportError> {
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_string(), value));
    fact("Profile", info.profile.clone());
    for t in &info.types {
        let wanted = style
            .unit
            .as_deref()
            .filter(|u| UnitFormatter::new(&t.sample_type.unit, Some(u)).is_ok());
        let measure = UnitFormatter::new(&t.sample_type.unit, wanted)?;
        let show = |value: i64| match style.format {
            ReportFormat::Csv => value.to_string(),
            _ => measure.show(value),
        };
        let mut value = format!(
            "{}/{}, total {}",
            t.sample_type.r#type,
            t.sample_type.unit,
            show(t.total)
        );
        if t.net != t.total {
            value.push_str(&format!(", net {}", show(t.net)));
        }
        if let Some(estimate) = &t.estimate {
            match style.format {
                ReportFormat::Csv => {
                    let [low, high, samples] = range::cells(Some(estimate));
                    value.push_str(&format!(", low {low}, high {high}, samples {samples}"));
                }
                _ => {
                    let (range, samples) = (
                        range::after(t.net, estimate, &measure),
                        range::samples(estimate),
                    );
                    value.push_str(&format!("{range}, from {samples}"));
                }
            }
        }
        let is_sampled = info.period > 1 && info.period_type.r#type == "space";
        if is_sampled && t.total != 0 && t.sample_type.r#type.starts_with("peak_") {
            value.push_str(", at the moment at which the estimate was largest");
        }
        if t.is_default {
            value.push_str(" (shown by default)");
        }
        fact("Sample type", value);
    }
    for (name, resident, heap) in [
        ("RSS", info.rss, "inuse_space"),
        ("Peak RSS", info.peak_rss, "peak_space"),
    ] {
        if let Some(resident) = resident {
            fact(name, resident_text(resident, heap, style)?);
        }
    }
    if let Some(text) = info
        .peak_rss
        .filter(|_| info.unseen_allocators.is_empty())
        .and_then(|peak| beside_heap(peak, info.runtime.as_ref(), style.advice))
    {
        fact("Outside the heap", text);
    }
    for text in &info.unseen_allocators {
        fact("Not recorded", text.clone());
    }
    if let Some(text) = unseen_frees(info.unseen_frees) {
        fact("Unseen frees", text);
    }
    if let Some(account) = &info.account {
        for row in account_rows(account, style)? {
            fact("Memory", row);
        }
    }
    fact(
        "Time",
        match info.time_nanos {
            0 => "unknown".to_string(),
            nanos => time_utc(nanos),
        },
    );
    if info.start_nanos != 0 {
        fact("Start", time_utc(info.start_nanos));
    }
    if info.duration_nanos != 0 {
        let nanos = UnitFormatter::new("nanoseconds", None)?;
        fact("Duration", nanos.show(info.duration_nanos));
    }
    fact("Period", period(info)?);
    fact(
        "Samples",
        format!(
            "{} and labels",
            plural(&info.samples.to_string(), "distinct stack")
        ),
    );
    fact("Functions", info.functions.to_string());
    let mut locations = info.locations.to_string();
    match info.unsymbolized {
        0 if info.locations > 0 => locations.push_str(", all with symbols"),
        0 => {}
        n => locations.push_str(&format!(
            ", {n} ({}) without symbols",
            percent(n, info.locations)
        )),
    }
    fact("Locations", locations);
    for mapping in &info.mappings {
        fact("Mapping", mapping_text(mapping));
    }
    let measure = UnitFormatter::new("bytes", None)?;
    for ends in &info.early_ends {
        fact("Partial stacks", early_ends_in(ends, &measure));
    }
    for wrapper in &info.wrappers {
        fact("Wrapper", wrapper_text(wrapper, style));
    }
    for comment in &info.comments {
        fact("Comment", comment.clone());
    }
    for (name, text) in [
        ("Drop frames", &drop_frames(info, style)),
        ("Keep frames", &info.keep_frames),
        ("Documentation", &info.doc_url),
    ] {
        if !text.is_empty() {
            fact(name, text.clone());
        }
    }
    Ok(facts)
}

/// Returns the expression for frames that reports cut. For people, one phrase stands for heapprof's
/// own table, because it has hundreds of names.
fn drop_frames(info: &InfoReport, style: &ReportStyle) -> String {
    let is_for_eyes = matches!(style.format, ReportFormat::Text | ReportFormat::Markdown);
    match heapprof_profile::after_allocators(&info.drop_frames) {
        Some(more) if is_for_eyes => {
            format!("heapprof's table of allocators and their wrappers{more}")
        }
        _ => info.drop_frames.clone(),
    }
}

/// Returns the RSS and the size of the heap as text. The heap may be larger than RSS, because pages
/// that were never touched are not resident.
fn resident_text(
    resident: RssBreakdown,
    heap: &str,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let wanted = style.unit.as_deref();
    let wanted = wanted.filter(|u| UnitFormatter::new("bytes", Some(u)).is_ok());
    let measure = UnitFormatter::new("bytes", wanted)?;
    let mut text = measure.show(resident.program_bytes());
    if resident.own > 0 {
        text.push_str(&format!(
            ", plus {} of heapprof's own tables",
            measure.show(resident.own)
        ));
    }
    if let Some(bytes) = resident.heap {
        let (shown, share) = (
            measure.show(bytes),
            percent(bytes, resident.program_bytes()),
        );
        text.push_str(&format!("; {heap} {shown} is {share} of it"));
        if bytes > resident.program_bytes() {
            text.push_str(", because not all of the heap was touched");
        }
    }
    Ok(text)
}

/// Returns the rows about the program's data: the whole, and then its parts, in the order of the
/// collector.
fn account_rows(account: &DataBreakdown, style: &ReportStyle) -> Result<Vec<String>, ReportError> {
    let wanted = style.unit.as_deref();
    let wanted = wanted.filter(|u| UnitFormatter::new("bytes", Some(u)).is_ok());
    let measure = UnitFormatter::new("bytes", wanted)?;
    let show = |bytes: i64| match style.format {
        ReportFormat::Csv => bytes.to_string(),
        _ => measure.show(bytes),
    };
    let shares = account
        .parts
        .iter()
        .map(|(_, bytes)| percent(*bytes, account.all));
    let (bytes, shares): (Vec<String>, Vec<String>) = (
        account
            .parts
            .iter()
            .map(|(_, bytes)| show(*bytes))
            .collect(),
        shares.collect(),
    );
    let width = |cells: &[String]| cells.iter().map(String::len).max().unwrap_or(0);
    let (wide, share_wide) = match style.format {
        ReportFormat::Text => (width(&bytes), width(&shares)),
        _ => (0, 0),
    };
    let whole = format!(
        "{} of data (VmData), without {} of heapprof's own; of this:",
        show(account.all),
        show(account.own)
    );
    let cells = bytes.iter().zip(&shares).zip(&account.parts);
    let rows = cells
        .map(|((bytes, share), (name, _))| format!("{bytes:>wide$}  {share:>share_wide$}  {name}"));
    Ok([whole].into_iter().chain(rows).collect())
}

fn period(info: &InfoReport) -> Result<String, ReportError> {
    let t = &info.period_type;
    let measure = UnitFormatter::new(&t.unit, None)?;
    Ok(match info.period {
        0 => "unknown".to_string(),
        1 if t.r#type == "space" => "every allocation is recorded".to_string(),
        period if t.r#type == "space" => format!(
            "one sample every {} on average; the values are estimates",
            measure.show(period)
        ),
        period => format!("{} of {}", measure.show(period), t.r#type),
    })
}

fn mapping_text(mapping: &MappingInfo) -> String {
    let mut text = format!(
        "{:#x}-{:#x} {}",
        mapping.memory_start,
        mapping.memory_limit,
        if mapping.filename.is_empty() {
            "(no file)"
        } else {
            &mapping.filename
        },
    );
    if mapping.file_offset != 0 {
        text.push_str(&format!(" at offset {:#x}", mapping.file_offset));
    }
    if !mapping.build_id.is_empty() {
        text.push_str(&format!(", build id {}", mapping.build_id));
    }
    text.push_str(&format!(
        ", {}",
        plural(&mapping.locations.to_string(), "location")
    ));
    if mapping.unsymbolized > 0 {
        text.push_str(&format!(", {} without symbols", mapping.unsymbolized));
    }
    text
}

fn document(info: &InfoReport) -> Value {
    let wrappers = info.wrappers.iter().map(|wrapper| {
        json!({
            "function": wrapper.function,
            "callers": wrapper.callers,
            "value": i64::try_from(wrapper.value).unwrap_or(i64::MAX),
        })
    });
    let wrappers: Vec<Value> = wrappers.collect();
    let types: Vec<Value> = info
        .types
        .iter()
        .map(|t| {
            let mut object = json!({
                "sample_type": json::sample_type(&t.sample_type),
                "total": t.total, "net": t.net, "default": t.is_default,
            });
            if let Some(estimate) = &t.estimate {
                object["estimate"] = range::document(estimate);
            }
            object
        })
        .collect();
    let mappings: Vec<Value> = info
        .mappings
        .iter()
        .map(|m| {
            json!({
                "memory_start": format!("{:#x}", m.memory_start),
                "memory_limit": format!("{:#x}", m.memory_limit),
                "file_offset": format!("{:#x}", m.file_offset),
                "filename": m.filename, "build_id": m.build_id,
                "locations": m.locations, "unsymbolized": m.unsymbolized,
            })
        })
        .collect();
    let resident = |resident: Option<RssBreakdown>| {
        resident.map(|r| {
            let ratio = r.heap.map(|heap| heap as f64 / r.program_bytes() as f64);
            json!({"bytes": r.bytes, "own_tables": r.own, "heap": r.heap, "heap_ratio": ratio})
        })
    };
    let mut document = json!({
        "profile": info.profile,
        "sample_types": types,
        "time_nanos": info.time_nanos,
        "time": (info.time_nanos != 0).then(|| time_utc(info.time_nanos)),
        "duration_nanos": info.duration_nanos,
        "period_type": json::sample_type(&info.period_type),
        "period": info.period,
        "samples": info.samples,
        "functions": info.functions,
        "locations": info.locations,
        "unsymbolized": info.unsymbolized,
        "mappings": mappings,
        "rss": resident(info.rss),
        "peak_rss": resident(info.peak_rss),
        "wrappers": wrappers,
        "comments": info.comments,
        "drop_frames": info.drop_frames,
        "keep_frames": info.keep_frames,
        "doc_url": info.doc_url,
    });
    if let Some(account) = &info.account {
        let parts = account.parts.iter();
        let parts: Vec<Value> = parts
            .map(|(name, bytes)| json!({"name": name, "bytes": bytes}))
            .collect();
        document["memory"] = json!({
            "bytes": account.all, "own_tables": account.own, "parts": parts,
        });
    }
    if !info.unseen_allocators.is_empty() {
        document["unseen_allocators"] = json!(info.unseen_allocators);
    }
    let [blocks, bytes] = info.unseen_frees;
    if blocks > 0 {
        document["unseen_frees"] = json!({"blocks": blocks, "bytes": bytes});
    }
    if !info.early_ends.is_empty() {
        let all = info.early_ends.iter().map(|ends| {
            json!({
                "file": (!ends.file.is_empty()).then_some(&ends.file),
                "reason": ends.reason.map(heapprof_profile::EarlyEndReason::text),
                "stacks": ends.stacks,
                "alloc_objects": ends.objects,
                "alloc_space": ends.bytes,
            })
        });
        document["early_ends"] = all.collect();
    }
    if info.start_nanos != 0 {
        document["start_nanos"] = json!(info.start_nanos);
    }
    document
}
