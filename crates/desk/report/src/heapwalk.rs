//! The report `heapwalk`: how much of a heap has leaked, and which blocks.

pub(crate) mod allocator;
pub(crate) mod points;
pub(crate) mod words;

use heapprof_heap::{ChunkState, HeapSummary, LeakChains};
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::measure::{UnitFormatter, percent, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// A walk of a heap.
#[derive(Clone, Debug, Default)]
pub struct HeapWalkReport {
    /// The name of the process or file that was walked, as the user gave it.
    pub name: String,
    /// Notes about the walk: how long the process was stopped, what is missing.
    pub notes: Vec<String>,
    /// The sums over the heap.
    pub summary: HeapSummary,
}

/// The states of blocks, in the order of reports.
const STATE_ORDER: [ChunkState; 5] = [
    ChunkState::Leaked,
    ChunkState::Indirect,
    ChunkState::Maybe,
    ChunkState::Reached,
    ChunkState::Free,
];

/// Returns the meaning of a state.
fn meaning(state: ChunkState) -> &'static str {
    match state {
        ChunkState::Leaked => "nothing points to it",
        ChunkState::Indirect => "only leaked blocks point to it",
        ChunkState::Maybe => "only pointers into its middle point to it",
        ChunkState::Reached => "reachable from roots",
        ChunkState::Free => "free in malloc: bins, caches, top",
    }
}

/// Writes the summary of a walk, with at most `limit` rows of leaked blocks.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn heapwalk(
    walk: &HeapWalkReport,
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let summary = &walk.summary;
    let shown = limit.unwrap_or(usize::MAX).min(summary.groups.len());
    if style.format == ReportFormat::Json {
        return crate::json::text(document(walk, limit.unwrap_or(usize::MAX)));
    }
    let raw = style.format == ReportFormat::Csv;
    let measure = UnitFormatter::bytes(style)?;
    let groups = groups(summary, shown, &measure);
    if raw {
        return groups.render(style);
    }
    let all: u64 = summary.states.iter().map(|sum| sum.bytes).sum();
    let arenas = summary.arenas.iter().filter(|arena| arena.at != 0).count();
    let blocks: u64 = summary.states.iter().map(|sum| sum.blocks).sum();
    let mut text = format!(
        "{}: {} in {}, {}\n",
        printable(&walk.name),
        plural(&blocks.to_string(), "block"),
        plural(&arenas.to_string(), "arena"),
        measure.show(all)
    );
    for note in &walk.notes {
        text += &format!("{}\n", printable(note));
    }
    text += "\n";
    let mut states = ReportTable::new(&[
        ("state", ColumnAlign::Left),
        ("blocks", ColumnAlign::Right),
        ("bytes", ColumnAlign::Right),
        ("share", ColumnAlign::Right),
        ("what it means", ColumnAlign::Left),
    ])
    .folding_last();
    for state in STATE_ORDER {
        let sum = &summary.states[state as usize];
        states.row(vec![
            state.name().to_string(),
            sum.blocks.to_string(),
            measure.show(sum.bytes),
            percent(i128::from(sum.bytes), i128::from(all)),
            meaning(state).to_string(),
        ]);
    }
    text += &states.render(style)?;
    if groups.is_empty() {
        text += "\nnothing has leaked\n";
    } else {
        text += &groups.render_titled("What leaked, by size and kind", style)?;
        let chains = chains(summary, limit.unwrap_or(usize::MAX), &measure);
        if !chains.is_empty() {
            text += &chains.render_titled(
                "Leaked blocks, with everything reachable only through them",
                style,
            )?;
        }
    }
    Ok(text)
}

fn groups(summary: &HeapSummary, shown: usize, measure: &UnitFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("bytes", ColumnAlign::Right),
        ("blocks", ColumnAlign::Right),
        ("each", ColumnAlign::Right),
        ("state", ColumnAlign::Left),
        ("what it is", ColumnAlign::Left),
        ("the first at", ColumnAlign::Left),
    ]);
    for group in &summary.groups[..shown] {
        table.row(vec![
            measure.show(group.sum.bytes),
            group.sum.blocks.to_string(),
            measure.show(group.size),
            group.state.name().to_string(),
            group.what.clone(),
            format!("{:#x}", group.example),
        ]);
    }
    let rest = &summary.groups[shown..];
    if !rest.is_empty() {
        let bytes: u64 = rest.iter().map(|group| group.sum.bytes).sum();
        let blocks: u64 = rest.iter().map(|group| group.sum.blocks).sum();
        table.row(vec![
            measure.show(bytes),
            blocks.to_string(),
            String::new(),
            format!("(other: {} more)", rest.len()),
            String::new(),
            String::new(),
        ]);
    }
    table
}

fn chains(summary: &HeapSummary, shown: usize, measure: &UnitFormatter) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("bytes", ColumnAlign::Right),
        ("blocks", ColumnAlign::Right),
        ("leaked", ColumnAlign::Right),
        ("own", ColumnAlign::Right),
        ("what they are", ColumnAlign::Left),
        ("the first at", ColumnAlign::Left),
    ]);
    let (shown, rest) = summary.chains.split_at(shown.min(summary.chains.len()));
    for one in shown {
        table.row(vec![
            measure.show(one.sum.bytes),
            one.sum.blocks.to_string(),
            one.count.to_string(),
            measure.show(one.size),
            one.what.clone(),
            format!("{:#x}", one.example),
        ]);
    }
    if !rest.is_empty() {
        let sum = |of: fn(&LeakChains) -> u64| rest.iter().map(of).sum::<u64>();
        table.row(vec![
            measure.show(sum(|one| one.sum.bytes)),
            sum(|one| one.sum.blocks).to_string(),
            sum(|one| one.count).to_string(),
            String::new(),
            format!("(other: {} more)", rest.len()),
            String::new(),
        ]);
    }
    table
}

fn document(walk: &HeapWalkReport, limit: usize) -> Value {
    let summary = &walk.summary;
    let shown = limit.min(summary.groups.len());
    let states = STATE_ORDER.iter().map(|&state| {
        let sum = &summary.states[state as usize];
        json!({"state": state.name(), "blocks": sum.blocks, "bytes": sum.bytes})
    });
    let groups = summary.groups[..shown].iter().map(|group| {
        json!({
            "state": group.state.name(), "size": group.size, "what": group.what,
            "blocks": group.sum.blocks, "bytes": group.sum.bytes, "example": group.example,
        })
    });
    let rest = &summary.groups[shown..];
    let chains = summary.chains.iter().take(limit).map(|one| {
        json!({
            "what": one.what, "size": one.size, "first_blocks": one.count,
            "blocks": one.sum.blocks, "bytes": one.sum.bytes, "example": one.example,
        })
    });
    json!({
        "name": walk.name, "notes": walk.notes, "unwalked": summary.unwalked,
        "states": states.collect::<Vec<_>>(), "groups": groups.collect::<Vec<_>>(),
        "chains": chains.collect::<Vec<_>>(),
        "other": {
            "groups": rest.len(), "blocks": rest.iter().map(|one| one.sum.blocks).sum::<u64>(),
            "bytes": rest.iter().map(|one| one.sum.bytes).sum::<u64>(),
            "chains": summary.chains.len().saturating_sub(limit),
        },
    })
}

#[cfg(test)]
mod tests {
    use heapprof_heap::{BlockGroup, BlockSum};

    use super::*;

    #[test]
    fn rows_add_up_to_what_leaked() {
        let group = |size: u64, blocks: u64, state| BlockGroup {
            state,
            size,
            what: "text".to_string(),
            sum: BlockSum {
                blocks,
                bytes: size * blocks,
            },
            example: 0x1000,
        };
        let mut summary = HeapSummary {
            groups: vec![
                group(1000, 4, ChunkState::Leaked),
                group(24, 2, ChunkState::Maybe),
                group(8, 1, ChunkState::Leaked),
            ],
            chains: vec![LeakChains {
                count: 2,
                example: 0x1000,
                what: "Node".to_string(),
                size: 1000,
                sum: BlockSum {
                    blocks: 3,
                    bytes: 1048,
                },
            }],
            ..HeapSummary::default()
        };
        summary.states[ChunkState::Leaked as usize] = BlockSum {
            blocks: 5,
            bytes: 4008,
        };
        let walk = HeapWalkReport {
            name: "pid:7".to_string(),
            summary,
            ..HeapWalkReport::default()
        };
        let text = heapwalk(&walk, Some(1), &ReportStyle::default()).unwrap();
        assert!(
            text.starts_with("pid:7: 5 blocks in 0 arenas, 3.91KiB\n"),
            "{text}"
        );
        assert!(text.contains("3.91KiB       4  1000B  leaked"), "{text}");
        assert!(
            text.contains("56B       3         (other: 2 more)"),
            "{text}"
        );
        let row = "1.02KiB       3       2  1000B  Node           0x1000\n";
        assert!(text.ends_with(row), "{text}");
        let nothing = heapwalk(&HeapWalkReport::default(), None, &ReportStyle::default()).unwrap();
        assert!(nothing.contains("nothing has leaked"), "{nothing}");
    }
}
