//! The report `proc --diff`: how a process's memory has changed between two moments.

use std::collections::BTreeMap;

use heapprof_process::{MemoryUsage, USAGE_FIELDS, UsageField};
use serde_json::{Map, Value, json};

use super::snapshot::kind_order;
use super::{ProcessParts, ProcessSnapshot, ROUNDING_NAME};
use crate::error::ReportError;
use crate::measure::UnitFormatter;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, RowTint, printable};

/// The fields whose changes are columns of a table of text.
const TEXT_FIELDS: [&str; 6] = ["size", "pss", "uss", "shared_clean", "shared_dirty", "swap"];

/// A part of a process's memory, before and now.
struct ProcessPartChange {
    name: String,
    before: MemoryUsage,
    now: MemoryUsage,
}

impl ProcessPartChange {
    fn change(&self, field: &UsageField) -> i128 {
        i128::from((field.get)(&self.now)) - i128::from((field.get)(&self.before))
    }
}

/// Writes how a process's memory has changed.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes, or one of the two
/// moments has no parts.
pub fn process_difference(
    before: &ProcessSnapshot,
    now: &ProcessSnapshot,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let (Some(old), Some(new)) = (&before.parts, &now.parts) else {
        return Err(ReportError::NoParts);
    };
    let rows = rows(old, new);
    if style.format == ReportFormat::Json {
        return crate::json::text(document(before, now, &rows));
    }
    let raw = style.format == ReportFormat::Csv;
    let measure = UnitFormatter::bytes(style)?;
    let shown =
        |field: &&UsageField| raw && field.name != "rss" || TEXT_FIELDS.contains(&field.name);
    let fields: Vec<&UsageField> = USAGE_FIELDS.iter().filter(shown).collect();
    let mut table = ReportTable::new(&[
        ("what", ColumnAlign::Left),
        ("rss before", ColumnAlign::Right),
        ("rss now", ColumnAlign::Right),
        ("rss", ColumnAlign::Right),
    ]);
    for field in &fields {
        table.column(field.name, ColumnAlign::Right);
    }
    let rss = USAGE_FIELDS.iter().find(|field| field.name == "rss");
    for row in &rows {
        let signed = |field: &UsageField| match row.change(field) {
            0 if !raw => "-".to_string(),
            change => measure.show_signed(change),
        };
        let change = rss.map_or(0, |rss| row.change(rss));
        let mut cells = vec![
            row.name.clone(),
            measure.show(row.before.rss),
            measure.show(row.now.rss),
            rss.map_or_else(String::new, signed),
        ];
        cells.extend(fields.iter().map(|field| signed(field)));
        let tint = match change {
            1.. => Some(RowTint::Grown),
            0 => None,
            _ => Some(RowTint::Shrunk),
        };
        table.tinted_row(cells, tint);
    }
    if raw {
        return table.render(style);
    }
    let mut text = head(before, now, old, new, &measure)?;
    text += &table.render(style)?;
    text += &counters(before, now, &measure).render_titled("What the kernel counts", style)?;
    Ok(text)
}

/// Returns the parts in the order of reports, then the rounding and the total.
fn rows(old: &ProcessParts, new: &ProcessParts) -> Vec<ProcessPartChange> {
    let mut all: BTreeMap<(usize, &str), [MemoryUsage; 2]> = BTreeMap::new();
    for (i, seen) in [old, new].into_iter().enumerate() {
        for row in &seen.kinds {
            let key = (kind_order(&row.kind), row.kind.as_str());
            all.entry(key).or_default()[i].add(&row.usage);
        }
    }
    let row = |name: &str, [before, now]: [MemoryUsage; 2]| ProcessPartChange {
        name: name.to_string(),
        before,
        now,
    };
    let mut rows: Vec<ProcessPartChange> = all
        .into_iter()
        .map(|((_, name), both)| row(name, both))
        .collect();
    if [old.rounding, new.rounding] != [MemoryUsage::default(); 2] {
        rows.push(row(ROUNDING_NAME, [old.rounding, new.rounding]));
    }
    rows.push(row("total", [old.total, new.total]));
    rows
}

fn head(
    before: &ProcessSnapshot,
    now: &ProcessSnapshot,
    old: &ProcessParts,
    new: &ProcessParts,
    measure: &UnitFormatter,
) -> Result<String, ReportError> {
    let time = UnitFormatter::new("nanoseconds", None)?;
    let change = i128::from(new.total.rss) - i128::from(old.total.rss);
    let mut text = format!(
        "{}: {} in memory after {}, {}\n",
        printable(&now.description()),
        measure.show(new.total.rss),
        time.show(i128::from(now.time_nanos) - i128::from(before.time_nanos)),
        match change {
            0 => "no change".to_string(),
            change => measure.show_signed(change),
        }
    );
    if before.pid != now.pid || before.began != now.began {
        text += &format!(
            "the file describes another process, or an earlier run of this one: {}\n",
            printable(&before.description())
        );
    }
    for note in &now.notes {
        text += &format!("{}\n", printable(note));
    }
    Ok(text + "\n")
}

fn counters(
    before: &ProcessSnapshot,
    now: &ProcessSnapshot,
    measure: &UnitFormatter,
) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("counter", ColumnAlign::Left),
        ("before", ColumnAlign::Right),
        ("now", ColumnAlign::Right),
        ("change", ColumnAlign::Right),
    ]);
    for (name, bytes) in &now.counters {
        let (Some(old), Some(new)) = (before.counter(name), *bytes) else {
            continue;
        };
        let change = i128::from(new) - i128::from(old);
        table.row(vec![
            name.clone(),
            measure.show(old),
            measure.show(new),
            match change {
                0 => "-".to_string(),
                change => measure.show_signed(change),
            },
        ]);
    }
    table
}

fn is_as_kernel_sums(of: &ProcessSnapshot) -> bool {
    of.parts.as_ref().is_some_and(|seen| seen.is_as_kernel_sums)
}

fn document(before: &ProcessSnapshot, now: &ProcessSnapshot, rows: &[ProcessPartChange]) -> Value {
    let usage = |of: &dyn Fn(&UsageField) -> Value| -> Map<String, Value> {
        let fields = USAGE_FIELDS.iter();
        fields
            .map(|field| (field.name.to_string(), of(field)))
            .collect()
    };
    let rows = rows.iter().map(|row| {
        json!({
            "what": row.name,
            "before": usage(&|field| json!((field.get)(&row.before))),
            "now": usage(&|field| json!((field.get)(&row.now))),
            "change": usage(&|field| json!(row.change(field) as i64)),
        })
    });
    let counters = now.counters.iter().map(|(name, bytes)| {
        (
            name.clone(),
            json!({"before": before.counter(name), "now": bytes}),
        )
    });
    json!({
        "before": {"pid": before.pid, "name": before.name, "time_nanos": before.time_nanos},
        "now": {"pid": now.pid, "name": now.name, "time_nanos": now.time_nanos},
        "as_smaps_rollup": [is_as_kernel_sums(before), is_as_kernel_sums(now)],
        "counters": counters.collect::<Map<_, _>>(),
        "missing": now.notes, "rows": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessRow;

    fn snapshot(time_nanos: i64, kinds: &[(&str, u64)], rounding: u64) -> ProcessSnapshot {
        let row = |(kind, rss): &(&str, u64)| ProcessRow {
            kind: (*kind).to_string(),
            name: (*kind).to_string(),
            mappings: 1,
            usage: MemoryUsage {
                rss: *rss,
                pss: *rss,
                private_dirty: *rss,
                ..MemoryUsage::default()
            },
        };
        let kinds: Vec<ProcessRow> = kinds.iter().map(row).collect();
        let mut total = ProcessRow::sum(&kinds).usage;
        total.pss += rounding;
        ProcessSnapshot {
            pid: 1,
            name: "a".to_string(),
            time_nanos,
            counters: vec![("VmRSS".to_string(), Some(total.rss))],
            parts: Some(ProcessParts {
                kinds,
                rounding: MemoryUsage {
                    pss: rounding,
                    ..MemoryUsage::default()
                },
                total,
                ..ProcessParts::default()
            }),
            ..ProcessSnapshot::default()
        }
    }

    #[test]
    fn changes_add_up() {
        let before = snapshot(0, &[("heap", 4096), ("stack", 512)], 100);
        let now = snapshot(
            2_000_000_000,
            &[("heap", 8192), ("malloc arenas", 1024)],
            40,
        );
        let (old, new) = (before.parts.as_ref().unwrap(), now.parts.as_ref().unwrap());
        let rows = rows(old, new);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            names,
            ["heap", "malloc arenas", "stack", ROUNDING_NAME, "total"]
        );
        for field in USAGE_FIELDS {
            let parts = rows[..4].iter().map(|row| row.change(field));
            assert_eq!(parts.sum::<i128>(), rows[4].change(field), "{}", field.name);
        }
        let text = process_difference(&before, &now, &ReportStyle::default()).unwrap();
        assert!(
            text.starts_with("1 a: 9KiB in memory after 2s, +4.50KiB\n"),
            "{text}"
        );
        assert!(text.contains("VmRSS"), "{text}");
        let other = ProcessSnapshot {
            pid: 2,
            ..snapshot(0, &[], 0)
        };
        let text = process_difference(&other, &now, &ReportStyle::default()).unwrap();
        assert!(text.contains("earlier run of this one: 2 a"), "{text}");
        let blind = ProcessSnapshot::default();
        assert!(process_difference(&blind, &now, &ReportStyle::default()).is_err());
    }
}
