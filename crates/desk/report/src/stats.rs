//! The report `stats`: a summary of a profile.

use heapprof_analysis::{
    coverage::RssBreakdown,
    stats::{StatsReport, StatsSize, StatsThread, StatsType},
};
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::glyphs::bar;
use crate::head::with_head;
use crate::json;
use crate::measure::{UnitFormatter, percent};
use crate::range;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// Longest bar of the histogram, in characters.
const MAX_BAR_CHARS: i128 = 24;

/// Writes the report `stats`.
pub fn stats(stats: &StatsReport, style: &ReportStyle) -> Result<String, ReportError> {
    // The formatter is made in any case, so that a wrong --unit is an error in every format.
    let bytes = UnitFormatter::new("bytes", style.unit.as_deref())?;
    match style.format {
        ReportFormat::Json => json::text(stats_document(stats)),
        ReportFormat::Csv => facts(stats)?.render(style),
        ReportFormat::Text | ReportFormat::Markdown => {
            let mut text = with_head(&lines(stats, &bytes)?, "", style);
            for (title, table) in tables(stats, &bytes)? {
                text += "\n";
                text += &with_head(&[title], &table.render(style)?, style);
            }
            Ok(text)
        }
    }
}

fn measure(of: &StatsType, bytes: &UnitFormatter) -> Result<UnitFormatter, ReportError> {
    match of.sample_type.unit.as_str() {
        "bytes" => Ok(bytes.clone()),
        unit => UnitFormatter::new(unit, None),
    }
}

/// Returns the lines above the tables: totals, mean sizes, the median, the peak, and RSS.
fn lines(stats: &StatsReport, bytes: &UnitFormatter) -> Result<Vec<String>, ReportError> {
    let how = match stats.period {
        0 => String::new(),
        1 => ", every allocation is counted".to_string(),
        period => format!(
            ", estimated from one sample every {} on average",
            UnitFormatter::new("bytes", None)?.show(period)
        ),
    };
    let mut lines = vec![format!("{}{how}", stats.profile)];
    for of in &stats.types {
        let measure = measure(of, bytes)?;
        let mut line = format!("{:<20} {}", of.sample_type.r#type, measure.show(of.net));
        if let Some(estimate) = &of.estimate {
            line += &range::after(of.net, estimate, &measure);
            line += &format!(", from {}", range::samples(estimate));
        }
        if of.sample_type.r#type == "peak_space"
            && let Some(since) = stats.peak_since_nanos
        {
            let time = UnitFormatter::new("nanoseconds", None)?;
            line += &format!(", at {}", time.show(since));
        }
        lines.push(line);
    }
    for (name, of) in [("in use", "inuse"), ("allocated", "alloc")] {
        if let Some(mean) = stats.mean_size(of) {
            let mean = bytes.show(mean.round() as i64);
            lines.push(format!("{:<20} {mean}", format!("mean size {name}")));
        }
    }
    if let Some([least, most]) = stats.median() {
        lines.push(format!(
            "{:<20} {} (of all allocations)",
            "median size",
            size_text(Some([least, most]), bytes)
        ));
    }
    if stats.sizes.is_empty() {
        lines.push(format!(
            "{:<20} not recorded; heapprof record counts them",
            "sizes"
        ));
    }
    for (name, resident) in ["RSS", "peak RSS"].iter().zip(stats.rss) {
        if let Some(resident) = resident {
            lines.push(format!("{name:<20} {}", resident_text(resident, bytes)));
        }
    }
    Ok(lines)
}

/// Returns the RSS, and the heap's share of it.
fn resident_text(resident: RssBreakdown, bytes: &UnitFormatter) -> String {
    let mut text = bytes.show(resident.program_bytes());
    if let Some(heap) = resident.heap {
        text += &format!(
            ", of which the heap is {}",
            percent(heap, resident.program_bytes())
        );
    }
    text
}

fn tables(
    stats: &StatsReport,
    bytes: &UnitFormatter,
) -> Result<Vec<(String, ReportTable)>, ReportError> {
    let mut tables = Vec::new();
    if !stats.sizes.is_empty() {
        tables.push((
            "Sizes of allocations in the whole process".to_string(),
            histogram(stats, bytes),
        ));
    }
    if !stats.threads.is_empty() {
        tables.push(("Threads".to_string(), threads(stats, bytes)));
    }
    for of in &stats.types {
        let shown = [
            "inuse_space",
            "alloc_space",
            "alloc_objects",
            "temporary_objects",
        ];
        let is_shown = shown.contains(&of.sample_type.r#type.as_str());
        // A profile without heapprof's sample types has types of its own.
        let has_ours = stats.net("inuse_space").is_some();
        if of.first.is_empty() || (has_ours && !is_shown) {
            continue;
        }
        let measure = measure(of, bytes)?;
        let mut table = ReportTable::new(&[
            ("flat", ColumnAlign::Right),
            ("flat%", ColumnAlign::Right),
            ("function", ColumnAlign::Left),
        ]);
        for (place, value) in &of.first {
            let share = percent(*value, of.net);
            table.row(vec![measure.show(*value), share, place.label()]);
        }
        tables.push((format!("Top functions by {}", of.sample_type.r#type), table));
    }
    Ok(tables)
}

fn histogram(stats: &StatsReport, bytes: &UnitFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("size", ColumnAlign::Right),
        ("allocated", ColumnAlign::Right),
        ("alloc%", ColumnAlign::Right),
        ("in use", ColumnAlign::Right),
        ("inuse%", ColumnAlign::Right),
        ("", ColumnAlign::Left),
    ]);
    let sum = |of: fn(&StatsSize) -> i64| {
        let each = stats.sizes.iter().map(|size| i128::from(of(size)));
        i64::try_from(each.sum::<i128>()).unwrap_or(i64::MAX)
    };
    let [allocated, in_use] = [sum(|of| of.alloc_objects), sum(|of| of.inuse_objects)];
    let most = stats.sizes.iter().map(|of| of.alloc_objects).max();
    let most = i128::from(most.unwrap_or(0).max(1));
    for of in &stats.sizes {
        let eighths = i128::from(of.alloc_objects.max(0)) * 8 * MAX_BAR_CHARS / most;
        table.row(vec![
            size_text(of.sizes, bytes),
            of.alloc_objects.to_string(),
            percent(of.alloc_objects, allocated),
            of.inuse_objects.to_string(),
            percent(of.inuse_objects, in_use),
            bar(eighths as usize),
        ]);
    }
    table
}

/// Makes the table of each thread's allocations.
fn threads(stats: &StatsReport, bytes: &UnitFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("in use", ColumnAlign::Right),
        ("inuse%", ColumnAlign::Right),
        ("allocated", ColumnAlign::Right),
        ("alloc%", ColumnAlign::Right),
        ("threads", ColumnAlign::Right),
        ("thread", ColumnAlign::Left),
    ]);
    let [in_use, allocated] = ["inuse_space", "alloc_space"].map(|of| stats.net(of).unwrap_or(0));
    for of in &stats.threads {
        table.row(vec![
            bytes.show(of.inuse_space),
            percent(of.inuse_space, in_use),
            bytes.show(of.alloc_space),
            percent(of.alloc_space, allocated),
            // For threads that the collector counted together, the number is not known.
            Some(of.ids)
                .filter(|&ids| ids != 0)
                .map_or_else(String::new, |ids| ids.to_string()),
            thread_name(of).to_string(),
        ]);
    }
    table
}

fn thread_name(of: &StatsThread) -> &str {
    of.name.as_deref().unwrap_or("(other)")
}

fn size_text(sizes: Option<[i64; 2]>, bytes: &UnitFormatter) -> String {
    match sizes {
        Some([least, most]) => {
            let next = bytes.show(most.saturating_add(1));
            format!("{} up to {next}", bytes.show(least))
        }
        None => "mappings".to_string(),
    }
}

/// Makes the table of the whole report as facts, for CSV.
fn facts(stats: &StatsReport) -> Result<ReportTable, ReportError> {
    let mut table = ReportTable::new(&[
        ("fact", ColumnAlign::Left),
        ("of", ColumnAlign::Left),
        ("value", ColumnAlign::Right),
        ("low", ColumnAlign::Right),
        ("high", ColumnAlign::Right),
    ]);
    let mut fact = |fact: &str, of: &str, value: String| {
        table.row(vec![
            fact.to_string(),
            of.to_string(),
            value,
            String::new(),
            String::new(),
        ]);
    };
    for of in ["inuse", "alloc"] {
        if let Some(mean) = stats.mean_size(of) {
            fact("mean_size", of, format!("{mean:.1}"));
        }
    }
    if let Some([least, _]) = stats.median() {
        fact("median_class", "alloc", least.to_string());
    }
    if let Some(since) = stats.peak_since_nanos {
        fact("peak_since_nanos", "", since.to_string());
    }
    for (name, resident) in ["rss", "peak_rss"].iter().zip(stats.rss) {
        if let Some(resident) = resident {
            fact(name, "", resident.program_bytes().to_string());
        }
    }
    for of in &stats.sizes {
        let class = of
            .sizes
            .map_or_else(|| "mappings".to_string(), |[least, _]| least.to_string());
        fact(
            "alloc_objects_of_size",
            &class,
            of.alloc_objects.to_string(),
        );
        fact(
            "inuse_objects_of_size",
            &class,
            of.inuse_objects.to_string(),
        );
    }
    for of in &stats.threads {
        let name = thread_name(of);
        fact("inuse_space_of_thread", name, of.inuse_space.to_string());
        fact("alloc_space_of_thread", name, of.alloc_space.to_string());
    }
    for of in &stats.types {
        for (place, value) in &of.first {
            let first = format!("first_{}", of.sample_type.r#type);
            fact(&first, &place.label(), value.to_string());
        }
    }
    for of in &stats.types {
        let [low, high, _] = range::cells(of.estimate.as_ref());
        let name = of.sample_type.r#type.clone();
        table.row(vec![
            "total".to_string(),
            name,
            of.net.to_string(),
            low,
            high,
        ]);
    }
    Ok(table)
}

/// Returns the report as JSON, which is also a part of the document of `info`.
pub(crate) fn stats_document(stats: &StatsReport) -> Value {
    let types = stats.types.iter().map(|of| {
        let first = of.first.iter();
        let first: Vec<Value> = first
            .map(|(place, flat)| {
                let mut row = json::place(place);
                row.insert("flat".into(), json!(flat));
                row.into()
            })
            .collect();
        let mut object = json!({
            "sample_type": json::sample_type(&of.sample_type),
            "net": of.net,
            "first": first,
        });
        if let Some(estimate) = &of.estimate {
            object["estimate"] = range::document(estimate);
        }
        object
    });
    let sizes = stats.sizes.iter().map(|of| {
        json!({
            "least": of.sizes.map(|[least, _]| least),
            "most": of.sizes.map(|[_, most]| most),
            "alloc_objects": of.alloc_objects,
            "inuse_objects": of.inuse_objects,
        })
    });
    let threads = stats.threads.iter().map(|of| {
        json!({
            "thread": of.name,
            "tids": of.ids,
            "inuse_space": of.inuse_space,
            "alloc_space": of.alloc_space,
        })
    });
    let resident = |of: Option<RssBreakdown>| {
        of.map(|of| json!({"bytes": of.bytes, "own_tables": of.own, "heap": of.heap}))
    };
    let types: Vec<Value> = types.collect();
    let (sizes, threads): (Vec<Value>, Vec<Value>) = (sizes.collect(), threads.collect());
    json!({
        "profile": stats.profile,
        "period": stats.period,
        "sample_types": types,
        "mean_size_inuse": stats.mean_size("inuse"),
        "mean_size_alloc": stats.mean_size("alloc"),
        "median_size": stats.median(),
        "peak_since_nanos": stats.peak_since_nanos,
        "sizes": sizes,
        "threads": threads,
        "rss": resident(stats.rss[0]),
        "peak_rss": resident(stats.rss[1]),
    })
}
