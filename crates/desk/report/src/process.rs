//! The report `proc`: the memory of a process, explained; its difference between two moments; and a
//! list of processes.

mod difference;
mod list;
mod snapshot;

use heapprof_process::{
    Cgroup, CgroupPressure, MAPPING_KINDS, MemoryUsage, USAGE_FIELDS, UsageField,
};
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::measure::{UnitFormatter, percent, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

pub use self::difference::process_difference;
pub use self::list::{ListedProcess, processes};
pub use self::snapshot::{ProcessParts, ProcessRow, ProcessSnapshot};

/// The fields that are columns of a table of text. Reports for programs have all fields.
const TEXT_FIELDS: [&str; 9] = [
    "size",
    "rss",
    "pss",
    "private_clean",
    "private_dirty",
    "shared_clean",
    "shared_dirty",
    "swap",
    "huge",
];

/// The columns that a narrow screen leaves out, in this order.
const LESS_NEEDED_FIELDS: [&str; 7] = [
    "huge",
    "shared_dirty",
    "private_clean",
    "shared_clean",
    "size",
    "maps",
    "swap",
];

/// The name of the row for the memory that the kernel rounds away.
pub(super) const ROUNDING_NAME: &str = "(rounding)";

fn text_fields() -> impl Iterator<Item = &'static UsageField> {
    USAGE_FIELDS
        .iter()
        .filter(|field| TEXT_FIELDS.contains(&field.name))
}

/// The options for showing the memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessOptions {
    /// Whether there is a row for each mapping instead of one for each kind.
    pub by_mapping: bool,
    /// Whether the explanations below the table are left out.
    pub is_brief: bool,
    /// The largest number of rows of mappings; `None` means all.
    pub limit: Option<usize>,
}

/// Writes the memory of a process.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn process(
    snapshot: &ProcessSnapshot,
    options: ProcessOptions,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    if style.format == ReportFormat::Json {
        return crate::json::text(snapshot.document());
    }
    let raw = style.format == ReportFormat::Csv;
    let measure = UnitFormatter::bytes(style)?;
    let fields: Vec<&UsageField> = match raw {
        true => USAGE_FIELDS.iter().collect(),
        false => text_fields().collect(),
    };
    let seen = snapshot.parts.as_ref();
    let table = seen.map(|seen| parts(seen, options, &fields, &measure, raw));
    if raw {
        let nothing = || parts(&ProcessParts::default(), options, &fields, &measure, raw);
        return table.unwrap_or_else(nothing).render(style);
    }
    let mut text = format!("{}\n", style.fold(head(snapshot, &measure).trim_end()));
    for note in &snapshot.notes {
        text += &format!("{}\n", style.fold(&printable(note)));
    }
    if let Some(mut table) = table.filter(|table| !table.is_empty()) {
        let dropped = match style.width {
            Some(width) => table.drop_columns(width, &LESS_NEEDED_FIELDS),
            None => Vec::new(),
        };
        text += &format!("\n{}", table.render(style)?);
        if !dropped.is_empty() {
            let line = format!("A wider screen shows more: {}.", dropped.join(", "));
            text += &format!("{}\n", style.fold(&line));
        }
    }
    let counters = counters(snapshot, &measure, !options.is_brief);
    if !counters.is_empty() {
        text += &counters.render_titled("What the kernel counts", style)?;
    }
    for line in surroundings(snapshot, &measure).lines() {
        text += &format!("{}\n", style.fold(line));
    }
    if !options.is_brief
        && let Some(seen) = &snapshot.parts
    {
        let mut table = ReportTable::new(&[
            ("word", ColumnAlign::Left),
            ("what it is", ColumnAlign::Left),
        ])
        .folding_last();
        let mut row = |name: &str, meaning: &str| {
            table.row(vec![name.to_string(), meaning.to_string()]);
        };
        let is_there = |name: &&str| seen.kinds.iter().any(|row| row.kind == **name);
        for (_, name, meaning) in MAPPING_KINDS.iter().filter(|(_, name, _)| is_there(name)) {
            row(name, meaning);
        }
        if seen.rounding != MemoryUsage::default() {
            row(
                ROUNDING_NAME,
                "The kernel rounds the proportional parts of each mapping down to whole KiB.",
            );
        }
        row("maps", "Number of mappings.");
        for field in USAGE_FIELDS
            .iter()
            .filter(|field| TEXT_FIELDS.contains(&field.name) || field.name == "uss")
        {
            row(field.name, field.meaning);
        }
        text += &table.render_titled("What the words mean", style)?;
    }
    Ok(text)
}

/// Returns the first line of the report.
fn head(snapshot: &ProcessSnapshot, measure: &UnitFormatter) -> String {
    let mut text = format!("{}: ", printable(&snapshot.description()));
    let counter = |name: &str| snapshot.counter(name).filter(|bytes| *bytes > 0);
    match &snapshot.parts {
        Some(seen) => {
            let of = |bytes: u64| measure.show(bytes);
            let total = &seen.total;
            text += &format!(
                "{} in memory, of which {} is its proportional share (pss) and {} private (uss)",
                of(total.rss),
                of(total.pss),
                of(total.uss())
            );
            if total.swap > 0 {
                text += &format!("; {} swapped out", of(total.swap));
            }
            if total.hugetlb > 0 {
                text += &format!("; another {} in hugetlbfs", of(total.hugetlb));
            }
        }
        None => match snapshot.counter("VmRSS") {
            Some(rss) => text += &format!("{} in memory", measure.show(rss)),
            None => text += "no memory of its own",
        },
    }
    if let Some(peak) = counter("VmHWM") {
        text += &format!("; peak {}", measure.show(peak));
    }
    text + "\n"
}

/// Makes the table of the parts of a process's memory, with a row for the total.
fn parts(
    seen: &ProcessParts,
    options: ProcessOptions,
    fields: &[&UsageField],
    measure: &UnitFormatter,
    is_for_programs: bool,
) -> ReportTable {
    let mut table = ReportTable::new(&[("what", ColumnAlign::Left), ("maps", ColumnAlign::Right)]);
    if options.by_mapping {
        table = ReportTable::new(&[("kind", ColumnAlign::Left), ("maps", ColumnAlign::Right)]);
    }
    for field in fields {
        table.column(field.name, ColumnAlign::Right);
    }
    if options.by_mapping {
        table.column("mapping", ColumnAlign::Left);
    }
    let rows = match options.by_mapping {
        true => &seen.mappings,
        false => &seen.kinds,
    };
    let shown = match options.by_mapping {
        true => options.limit.unwrap_or(usize::MAX).min(rows.len()),
        false => rows.len(),
    };
    let mut add =
        |what: &str, maps: usize, value: &dyn Fn(&UsageField) -> Option<u64>, name: &str| {
            let mut cells = vec![what.to_string(), maps.to_string()];
            cells.extend(fields.iter().map(|field| match value(field) {
                Some(0) if !is_for_programs => "-".to_string(),
                Some(bytes) => measure.show(bytes),
                None => String::new(),
            }));
            if options.by_mapping {
                cells.push(name.to_string());
            }
            table.row(cells);
        };
    for row in &rows[..shown] {
        add(
            &row.kind,
            row.mappings,
            &|field| Some((field.get)(&row.usage)),
            &row.name,
        );
    }
    if shown < rows.len() {
        let rest = ProcessRow::sum(&rows[shown..]);
        let name = format!("(other: {} more)", rows.len() - shown);
        add(
            "",
            rest.mappings,
            &|field| Some((field.get)(&rest.usage)),
            &name,
        );
    }
    if seen.rounding != MemoryUsage::default() {
        let of = |field: &UsageField| Some((field.get)(&seen.rounding)).filter(|bytes| *bytes > 0);
        add(ROUNDING_NAME, 0, &of, "");
    }
    let mappings = rows.iter().map(|row| row.mappings).sum();
    add(
        "total",
        mappings,
        &|field| Some((field.get)(&seen.total)),
        "",
    );
    table
}

fn counters(
    snapshot: &ProcessSnapshot,
    measure: &UnitFormatter,
    with_meaning: bool,
) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("counter", ColumnAlign::Left),
        ("value", ColumnAlign::Right),
    ]);
    if with_meaning {
        table.column("what it is", ColumnAlign::Left);
    }
    for (name, bytes) in &snapshot.counters {
        let Some(bytes) = bytes else { continue };
        let mut cells = vec![name.clone(), measure.show(*bytes)];
        if with_meaning {
            let known = heapprof_process::COUNTERS
                .iter()
                .find(|one| one.name == name);
            cells.push(known.map_or_else(String::new, |one| one.meaning.to_string()));
        }
        table.row(cells);
    }
    match with_meaning {
        true => table.folding_last(),
        false => table,
    }
}

/// Returns the lines about the surroundings of a process: its control group, and how long processes
/// wait for memory.
fn surroundings(snapshot: &ProcessSnapshot, measure: &UnitFormatter) -> String {
    let mut text = String::new();
    if let Some(group) = &snapshot.cgroup {
        text += &format!("\n{}\n", printable(&group_line(group, measure)));
        if let Some(pressure) = &group.pressure {
            text += &format!(
                "Its processes waited for memory {}\n",
                pressure_words(pressure)
            );
        }
    }
    if let Some(pressure) = &snapshot.pressure {
        let words = pressure_words(pressure);
        text += &format!("Processes of this machine waited for memory {words}\n");
    }
    text
}

fn group_line(group: &Cgroup, measure: &UnitFormatter) -> String {
    let of = |bytes: u64| measure.show(bytes);
    let mut text = format!(
        "Control group {} (version {}): ",
        group.folder.name, group.folder.version
    );
    let usage = group.usage.map_or_else(|| "unknown".to_string(), of);
    text += &match (group.limit, group.usage) {
        (Some(limit), Some(usage)) => format!(
            "{} of {}, {}",
            of(usage),
            of(limit),
            percent(i128::from(usage), i128::from(limit))
        ),
        (Some(limit), None) => format!("{usage} of {}", of(limit)),
        (None, _) => format!("{usage}, without a limit"),
    };
    if let Some(of_group) = &group.limit_of
        && *of_group != group.folder.name
    {
        text += &format!(" (the limit of {of_group})");
    }
    let parts = [
        ("at most", group.peak),
        ("slowed down above", group.high),
        ("anonymous", group.anonymous),
        ("files", group.file),
        ("swapped out", group.swap),
    ];
    for (name, bytes) in parts {
        if let Some(bytes) = bytes {
            text += &format!("; {name} {}", of(bytes));
        }
    }
    if let Some(count) = group.failures.filter(|count| *count > 0) {
        text += &format!(
            "; it reached the limit {}",
            plural(&count.to_string(), "time")
        );
    }
    if let Some(count) = group.oom_kills.filter(|count| *count > 0) {
        text += &format!("; the OOM killer killed {count} of its processes");
    }
    text
}

fn pressure_words(pressure: &CgroupPressure) -> String {
    let of = |three: &[f32; 3]| format!("{:.2}, {:.2} and {:.2} %", three[0], three[1], three[2]);
    format!(
        "{} of the time in the last 10, 60 and 300 s (all of them at once {})",
        of(&pressure.some),
        of(&pressure.full)
    )
}

/// Returns the facts about a control group as JSON.
pub(super) fn group_document(group: &Cgroup) -> Value {
    json!({
        "name": group.folder.name, "version": group.folder.version, "usage": group.usage,
        "peak": group.peak, "limit": group.limit, "limit_of": group.limit_of, "high": group.high,
        "swap": group.swap, "anonymous": group.anonymous, "file": group.file,
        "failures": group.failures, "oom_kills": group.oom_kills,
        "pressure": group.pressure.as_ref().map(pressure_document),
    })
}

/// Returns, as JSON, how long processes wait for memory.
pub(super) fn pressure_document(pressure: &CgroupPressure) -> Value {
    let of = |three: &[f32; 3]| json!({"avg10": three[0], "avg60": three[1], "avg300": three[2]});
    json!({"some": of(&pressure.some), "full": of(&pressure.full)})
}
