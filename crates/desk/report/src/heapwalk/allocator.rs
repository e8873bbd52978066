//! The state of malloc itself in a walked heap: its arenas, its lists of free blocks, its settings.

use heapprof_heap::{ArenaSum, FreeList, HeapSummary, MallocSettings, is_fragmented};
use serde_json::{Value, json};

use super::HeapWalkReport;
use crate::error::ReportError;
use crate::measure::{UnitFormatter, percent, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// Writes the state of malloc itself, with at most `limit` rows of lists.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn heapwalk_allocator(
    walk: &HeapWalkReport,
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let summary = &walk.summary;
    if style.format == ReportFormat::Json {
        let arenas = summary.arenas.iter().map(arena);
        return crate::json::text(json!({
            "name": walk.name, "notes": walk.notes, "arenas": arenas.collect::<Vec<_>>(),
            "settings": summary.settings.as_ref().map(settings),
            "large_in_arenas": summary.large_in_arenas.bytes,
            "large_blocks_in_arenas": summary.large_in_arenas.blocks,
            "trimmed": summary.trimmable,
        }));
    }
    let raw = style.format == ReportFormat::Csv;
    let measure = UnitFormatter::bytes(style)?;
    let arenas = arenas(summary, &measure);
    if raw {
        return arenas.render(style);
    }
    let mut text = format!("{}\n", printable(&walk.name));
    for note in &walk.notes {
        text += &format!("{}\n", printable(note));
    }
    text += &format!("{}\n", style.fold(&verdict(summary, &measure)));
    text += &format!("\n{}", arenas.render(style)?);
    let lists = lists(summary, limit.unwrap_or(usize::MAX), &measure);
    if !lists.is_empty() {
        text += &lists.render_titled("Free blocks, by list and size", style)?;
    }
    text += "\n";
    if let Some(settings) = &summary.settings {
        text += &threshold(settings, summary, &measure);
    }
    text += &format!(
        "malloc_trim(0) would give back {}\n",
        measure.show(summary.trimmable)
    );
    Ok(text)
}

/// Says in a sentence whether the program has the memory, or malloc, and why malloc keeps it.
fn verdict(summary: &HeapSummary, measure: &UnitFormatter) -> String {
    let sum = |bytes: fn(&ArenaSum) -> u64| summary.arenas.iter().map(bytes).sum::<u64>();
    let in_use = sum(|arena| arena.in_use.bytes.saturating_sub(arena.cached.bytes));
    let holes = sum(|arena| arena.free.blocks);
    let in_holes = sum(|arena| arena.free.bytes);
    let kept = in_holes + sum(|arena| arena.cached.bytes + arena.fast.bytes + arena.top);
    let [all, trimmable] = [kept, summary.trimmable].map(|bytes| measure.show(bytes));
    match () {
        () if kept < in_use / 3 => format!(
            "The program has most of the memory in use; {all} is free, and malloc_trim(0) would \
             give back {trimmable}."
        ),
        () if !is_fragmented(kept, summary.trimmable) || holes == 0 => format!(
            "malloc keeps {all} that the program has freed; malloc_trim(0) would give back \
             {trimmable}."
        ),
        () => format!(
            "Fragmented: of the {all} that the program has freed, {} lie in {} between blocks in \
             use, {} on average, so that malloc_trim(0) would give back only {trimmable}.",
            measure.show(in_holes),
            plural(&holes.to_string(), "hole"),
            measure.show(in_holes / holes),
        ),
    }
}

/// Returns the lines about mapped blocks: the size from which malloc gives a block a mapping of its
/// own, and the sum of the blocks with such mappings.
fn threshold(settings: &MallocSettings, summary: &HeapSummary, measure: &UnitFormatter) -> String {
    let grows = match settings.is_dynamic {
        true => "; this threshold grows when such a block is freed",
        false => "; this threshold is fixed",
    };
    let mut text = format!(
        "blocks of {} or more get their own mapping{grows}\n",
        measure.show(settings.mmap_threshold)
    );
    text += &format!(
        "with such mappings: {}, {} (at most {})\n",
        plural(&settings.mapped_blocks.to_string(), "block"),
        measure.show(settings.mapped_bytes),
        measure.show(settings.max_mapped_bytes)
    );
    let large = &summary.large_in_arenas;
    text += &format!(
        "of that size, but in arenas: {}, {}\n",
        plural(&large.blocks.to_string(), "block"),
        measure.show(large.bytes)
    );
    text
}

fn arenas(summary: &HeapSummary, measure: &UnitFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[("arena", ColumnAlign::Left)]);
    for name in [
        "system",
        "in use",
        "cached",
        "fast",
        "free",
        "largest free",
        "top",
        "share in use",
    ] {
        table.column(name, ColumnAlign::Right);
    }
    for arena in &summary.arenas {
        let share = percent(
            i128::from(arena.in_use.bytes),
            i128::from(arena.system_memory),
        );
        table.row(vec![
            arena_name(arena),
            measure.show(arena.system_memory),
            measure.show(arena.in_use.bytes),
            measure.show(arena.cached.bytes),
            measure.show(arena.fast.bytes),
            measure.show(arena.free.bytes),
            measure.show(arena.largest_free),
            measure.show(arena.top),
            share,
        ]);
    }
    table
}

fn arena_name(arena: &ArenaSum) -> String {
    match arena.at {
        0 => "(mapped)".to_string(),
        at => format!("{at:#x}"),
    }
}

/// Makes the table of the lists of free blocks of each arena. Lists of one kind share a row if
/// their largest chunks are between the same two powers of two.
fn lists(summary: &HeapSummary, limit: usize, measure: &UnitFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("arena", ColumnAlign::Left),
        ("list", ColumnAlign::Left),
        ("least", ColumnAlign::Right),
        ("largest", ColumnAlign::Right),
        ("blocks", ColumnAlign::Right),
        ("bytes", ColumnAlign::Right),
        ("share of free", ColumnAlign::Right),
    ]);
    let mut left = limit;
    let mut rest = (0usize, 0u64, 0u64);
    for arena in &summary.arenas {
        let all: u64 = arena.lists.iter().map(|list| list.sum.bytes).sum();
        let class = |list: &FreeList| (list.kind, list.to.max(1).ilog2());
        for group in arena.lists.chunk_by(|a, b| class(a) == class(b)) {
            let sum = |of: fn(&FreeList) -> u64| group.iter().map(of).sum::<u64>();
            let (blocks, bytes) = (sum(|list| list.sum.blocks), sum(|list| list.sum.bytes));
            if left == 0 {
                rest = (rest.0 + 1, rest.1 + blocks, rest.2 + bytes);
                continue;
            }
            left -= 1;
            let least = group.iter().map(|list| list.from).min().unwrap_or(0);
            let largest = group.iter().map(|list| list.to).max().unwrap_or(0);
            table.row(vec![
                arena_name(arena),
                group[0].kind.name().to_string(),
                measure.show(least),
                measure.show(largest),
                blocks.to_string(),
                measure.show(bytes),
                percent(i128::from(bytes), i128::from(all)),
            ]);
        }
    }
    if rest.0 > 0 {
        table.row(vec![
            format!("(other: {} more)", rest.0),
            String::new(),
            String::new(),
            String::new(),
            rest.1.to_string(),
            measure.show(rest.2),
            String::new(),
        ]);
    }
    table
}

fn arena(arena: &ArenaSum) -> Value {
    let lists = arena.lists.iter().map(|list| {
        json!({
            "list": list.kind.name(), "from": list.from, "to": list.to, "blocks": list.sum.blocks,
            "bytes": list.sum.bytes,
        })
    });
    json!({
        "at": arena.at, "system_memory": arena.system_memory, "in_use": arena.in_use.bytes,
        "in_use_blocks": arena.in_use.blocks, "cached": arena.cached.bytes,
        "cached_blocks": arena.cached.blocks, "fast": arena.fast.bytes,
        "fast_blocks": arena.fast.blocks, "free": arena.free.bytes,
        "free_blocks": arena.free.blocks, "largest_free": arena.largest_free, "top": arena.top,
        "lists": lists.collect::<Vec<_>>(),
    })
}

fn settings(settings: &MallocSettings) -> Value {
    json!({
        "mmap_threshold": settings.mmap_threshold, "trim_threshold": settings.trim_threshold,
        "is_dynamic": settings.is_dynamic, "mapped_blocks": settings.mapped_blocks,
        "mapped_bytes": settings.mapped_bytes, "most_mapped_bytes": settings.max_mapped_bytes,
    })
}
