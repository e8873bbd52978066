//! The report `perl-heap`: which variables hold the memory of a Perl program.

pub(crate) mod value_facts;

use heapprof_perl_values::{
    LeakedCycle, PadSummary, PerlHeapSummary, PerlLeak, ValueSum, perl_spelling,
};
use serde_json::json;

use crate::error::ReportError;
use crate::measure::{UnitFormatter, percent, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// The values of a Perl program.
#[derive(Clone, Debug, Default)]
pub struct PerlHeap {
    /// The name of the process or file that was read, as the user gave it.
    pub name: String,
    /// The perl in words, such as `perl 5.36.0`; empty if it is not known.
    pub perl: String,
    /// Notes about the read: how long the process was stopped, what is missing.
    pub notes: Vec<String>,
    /// The interpreters. Each has the number of values that Perl itself counts, and the number of
    /// values of each type, by Perl's name for the type.
    pub interpreters: Vec<(u64, Vec<(&'static str, u64)>)>,
    /// The bytes that malloc has allocated, and further bytes in blocks that threads keep for their
    /// next requests; `None` if that is not known.
    pub malloc: Option<(u64, u64)>,
    /// The sums of the values.
    pub summary: PerlHeapSummary,
}

/// Writes the sums of values, with at most `limit` variables.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn perl_heap(
    heap: &PerlHeap,
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let summary = &heap.summary;
    let limit = limit.unwrap_or(usize::MAX);
    if style.format == ReportFormat::Json {
        return crate::json::text(document(heap, limit));
    }
    let measure = UnitFormatter::bytes(style)?;
    let holders = holders(summary, limit, &measure);
    if style.format == ReportFormat::Csv {
        return all(summary, limit, &measure).render(style);
    }
    let mut text = format!("{}: ", printable(&heap.name));
    if !heap.perl.is_empty() {
        text += &format!("{}, ", printable(&heap.perl));
    }
    text += &plural(&summary.values.objects.to_string(), "value");
    text += &match heap.malloc {
        Some((malloc, _)) => format!(
            "; {} of the {} that malloc has allocated\n",
            measure.show(summary.all.bytes),
            measure.show(malloc)
        ),
        None => format!("; {}\n", measure.show(summary.all.bytes)),
    };
    for note in &heap.notes {
        text += &format!("{}\n", printable(note));
    }
    match holders.is_empty() {
        true => text += "\nno variable holds any memory\n",
        false => {
            text +=
                &holders.render_titled("Variables, and what would be freed with each", style)?;
        }
    }
    let all = summary.all;
    let kinds = summary.kinds.iter().map(|(name, sum)| (*name, sum));
    text += &sums("type", kinds, all, &measure).render_titled("Values by type", style)?;
    let parts = summary.parts.iter().map(|(name, sum)| (name.as_str(), sum));
    text += &sums("from", parts, all, &measure)
        .render_titled("Values by where they are reached from", style)?;
    Ok(text)
}

fn sums<'a>(
    title: &str,
    rows: impl Iterator<Item = (&'a str, &'a ValueSum)>,
    all: ValueSum,
    measure: &UnitFormatter,
) -> ReportTable {
    let mut table = ReportTable::new(&[
        (title, ColumnAlign::Left),
        ("objects", ColumnAlign::Right),
        ("bytes", ColumnAlign::Right),
        ("share", ColumnAlign::Right),
    ]);
    let row = |name: &str, sum: &ValueSum| {
        vec![
            name.to_string(),
            sum.objects.to_string(),
            measure.show(sum.bytes),
            percent(sum.bytes, all.bytes),
        ]
    };
    for (name, sum) in rows {
        table.row(row(name, sum));
    }
    table.row(row("total", &all));
    table
}

fn holders(summary: &PerlHeapSummary, limit: usize, measure: &UnitFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("retained", ColumnAlign::Right),
        ("objects", ColumnAlign::Right),
        ("variable", ColumnAlign::Left),
    ]);
    for holder in summary.holders.iter().take(limit) {
        table.row(vec![
            measure.show(holder.retained),
            holder.objects.to_string(),
            perl_spelling(&holder.path),
        ]);
    }
    more(&mut table, summary.holders.len(), limit, 3);
    table
}

/// Makes one table of all rows, for a program.
fn all(summary: &PerlHeapSummary, limit: usize, measure: &UnitFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("of", ColumnAlign::Left),
        ("name", ColumnAlign::Left),
        ("objects", ColumnAlign::Right),
        ("bytes", ColumnAlign::Right),
    ]);
    let mut row = |of: &str, name: &str, objects: u64, bytes: u64| {
        table.row(vec![
            of.to_string(),
            name.to_string(),
            objects.to_string(),
            measure.show(bytes),
        ]);
    };
    for (name, sum) in &summary.kinds {
        row("type", name, sum.objects, sum.bytes);
    }
    for (name, sum) in &summary.parts {
        row("from", name, sum.objects, sum.bytes);
    }
    row("total", "", summary.all.objects, summary.all.bytes);
    for one in summary.holders.iter().take(limit) {
        row("variable", &one.path, one.objects, one.retained);
    }
    table
}

/// Adds a row with the number of rows that are left out, if there are any.
fn more(table: &mut ReportTable, count: usize, limit: usize, columns: usize) {
    let left_out = count.saturating_sub(limit);
    if left_out > 0 {
        let mut cells = vec![String::new(); columns];
        cells[columns - 1] = format!("(other: {left_out} more)");
        table.row(cells);
    }
}

fn document(heap: &PerlHeap, limit: usize) -> serde_json::Value {
    let summary = &heap.summary;
    let sum = |name: &str, sum: &ValueSum| json!({"name": name, "objects": sum.objects, "bytes": sum.bytes});
    let holders = summary.holders.iter().take(limit);
    let holders = holders
        .map(|one| json!({"path": one.path, "objects": one.objects, "retained": one.retained}));
    let interpreters = heap.interpreters.iter().map(|(says, types)| {
        let all: u64 = types.iter().map(|(_, count)| count).sum();
        let types = types
            .iter()
            .map(|(name, count)| ((*name).to_string(), json!(count)));
        let types: serde_json::Map<_, _> = types.collect();
        json!({"sv_count": says, "values": all, "types": types})
    });
    json!({
        "interpreters": interpreters.collect::<Vec<_>>(),
        "name": heap.name, "perl": heap.perl, "notes": heap.notes, "malloc": heap.malloc.map(|(bytes, _)| bytes),
        "malloc_cached": heap.malloc.map(|(_, cached)| cached),
        "values": summary.values.objects, "bytes": summary.all.bytes,
        "types": summary.kinds.iter().map(|(name, of)| sum(name, of)).collect::<Vec<_>>(),
        "parts": summary.parts.iter().map(|(name, of)| sum(name, of)).collect::<Vec<_>>(),
        "variables": holders.collect::<Vec<_>>(),
        "other": summary.holders.len().saturating_sub(limit),
    })
}

/// Writes rings of references that are not reachable from anything else, with at most `limit` rows.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn perl_cycles(
    name: &str,
    cycles: &[LeakedCycle],
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let limit = limit.unwrap_or(usize::MAX);
    let count: u64 = cycles.iter().map(|cycle| cycle.count).sum();
    if style.format == ReportFormat::Json {
        let rows = cycles.iter().take(limit).map(|one| {
            json!({
                "count": one.count, "objects": one.objects, "retained": one.retained,
                "ring": one.ring, "closed_by": one.closed_by,
                "example": format!("{:#x}", one.example),
            })
        });
        let left_out = cycles.len().saturating_sub(limit);
        return crate::json::text(json!({
            "name": name, "cycles": count, "rows": rows.collect::<Vec<_>>(), "other": left_out,
        }));
    }
    let measure = UnitFormatter::bytes(style)?;
    let mut table = ReportTable::new(&[
        ("retained", ColumnAlign::Right),
        ("cycles", ColumnAlign::Right),
        ("values", ColumnAlign::Right),
        ("closed by", ColumnAlign::Left),
        ("cycle", ColumnAlign::Left),
        ("the first at", ColumnAlign::Left),
    ]);
    for one in cycles.iter().take(limit) {
        table.row(vec![
            measure.show(one.retained),
            one.count.to_string(),
            one.objects.to_string(),
            one.closed_by.clone(),
            one.ring.clone(),
            format!("{:#x}", one.example),
        ]);
    }
    more(&mut table, cycles.len(), limit, 6);
    if style.format == ReportFormat::Csv {
        return table.render(style);
    }
    let head = printable(name);
    Ok(match cycles.is_empty() {
        true => format!("{head}: no cycle has leaked\n"),
        false => {
            let cycles = plural(&count.to_string(), "cycle");
            format!(
                "{head}: {cycles} among the leaked values\n\n{}",
                table.render(style)?
            )
        }
    })
}

/// Writes the values that have leaked, by the first value of each leak, with at most `limit` rows.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn perl_leaked(
    name: &str,
    leaks: &[PerlLeak],
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let limit = limit.unwrap_or(usize::MAX);
    let retained: u64 = leaks.iter().map(|leak| leak.retained).sum();
    if style.format == ReportFormat::Json {
        let rows = leaks.iter().take(limit).map(|one| {
            json!({
                "path": one.path, "type": one.kind, "count": one.count,
                "retained": one.retained, "example": format!("{:#x}", one.example),
            })
        });
        let left_out = leaks.len().saturating_sub(limit);
        return crate::json::text(json!({
            "name": name, "retained": retained, "rows": rows.collect::<Vec<_>>(),
            "other": left_out,
        }));
    }
    let measure = UnitFormatter::bytes(style)?;
    let mut table = ReportTable::new(&[
        ("retained", ColumnAlign::Right),
        ("values", ColumnAlign::Right),
        ("type", ColumnAlign::Left),
        ("path", ColumnAlign::Left),
        ("the first at", ColumnAlign::Left),
    ]);
    for one in leaks.iter().take(limit) {
        table.row(vec![
            measure.show(one.retained),
            one.count.to_string(),
            one.kind.to_string(),
            one.path.clone(),
            format!("{:#x}", one.example),
        ]);
    }
    more(&mut table, leaks.len(), limit, 5);
    if style.format == ReportFormat::Csv {
        return table.render(style);
    }
    let head = printable(name);
    Ok(match leaks.is_empty() {
        true => format!("{head}: nothing has leaked\n"),
        false => {
            let retained = measure.show(retained);
            format!("{head}: {retained} leaked\n\n{}", table.render(style)?)
        }
    })
}

/// Writes the memory that the variables of subs keep between calls, with at most `limit` rows.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn perl_pads(
    name: &str,
    pads: &[PadSummary],
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let limit = limit.unwrap_or(usize::MAX);
    if style.format == ReportFormat::Json {
        let rows = pads.iter().take(limit).map(|one| {
            json!({
                "sub": one.sub, "depth": one.depth, "objects": one.objects,
                "retained": one.retained, "largest": one.largest,
                "largest_retained": one.largest_retained,
            })
        });
        let left_out = pads.len().saturating_sub(limit);
        return crate::json::text(json!({
            "name": name, "rows": rows.collect::<Vec<_>>(), "other": left_out,
        }));
    }
    let measure = UnitFormatter::bytes(style)?;
    let mut table = ReportTable::new(&[
        ("retained", ColumnAlign::Right),
        ("subs", ColumnAlign::Right),
        ("depth", ColumnAlign::Right),
        ("sub", ColumnAlign::Left),
        ("largest", ColumnAlign::Right),
        ("variable", ColumnAlign::Left),
    ]);
    for one in pads.iter().take(limit) {
        table.row(vec![
            measure.show(one.retained),
            one.objects.to_string(),
            one.depth.to_string(),
            one.sub.clone(),
            measure.show(one.largest_retained),
            one.largest.clone(),
        ]);
    }
    more(&mut table, pads.len(), limit, 6);
    if style.format == ReportFormat::Csv {
        return table.render(style);
    }
    let head = format!(
        "{}: memory that the variables of subs keep between calls\n\n",
        printable(name)
    );
    Ok(head + &table.render(style)?)
}
