//! Writes the pointers to a block, and the memory that would be freed with a block.

use serde_json::json;

use crate::error::ReportError;
use crate::measure::{UnitFormatter, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// A block, and the pointers to it.
#[derive(Clone, Debug, Default)]
pub struct BlockReferrers {
    /// The block in words: its address, size, state and content.
    pub block: String,
    /// The path to the block, each step in words: from a root, or from the first block of a leak,
    /// to the block itself. Empty if there is no such path.
    pub way: Vec<String>,
    /// Whether the path begins at a root.
    pub has_root: bool,
    /// All words in memory that point to the block. Each has a description of where the word is,
    /// and the offset in the block to which it points.
    pub referrers: Vec<(String, u64)>,
}

/// A block and the memory that it retains: blocks that are reached only through it. A variable or
/// stack outside of malloc's memory may take the place of the block.
#[derive(Clone, Debug, Default)]
pub struct RetainedBlock {
    /// The bytes that would be freed with the block, including its own.
    pub retained: u64,
    /// The bytes of the block itself; 0 for a variable or a stack.
    pub size: u64,
    /// The address of the block, variable or stack.
    pub at: u64,
    /// The class of the block, or the kind of its content; for a variable or a stack, its
    /// description.
    pub what: String,
    /// The root from which the block is reached, in words; empty for a variable or a stack.
    pub root: String,
}

/// Writes how much memory would be freed with each block, with at most `limit` rows. The memory
/// that a block retains may contain other blocks of the list, so the rows do not add up.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn heapwalk_retained(
    name: &str,
    blocks: &[RetainedBlock],
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let shown = &blocks[..limit.unwrap_or(usize::MAX).min(blocks.len())];
    if style.format == ReportFormat::Json {
        let rows = shown.iter().map(|one| {
            json!({
                "retained": one.retained, "size": one.size, "at": one.at,
                "what": one.what, "root": one.root,
            })
        });
        return crate::json::text(json!({"name": name, "rows": rows.collect::<Vec<_>>()}));
    }
    let raw = style.format == ReportFormat::Csv;
    let measure = UnitFormatter::bytes(style)?;
    let mut table = ReportTable::new(&[
        ("retained", ColumnAlign::Right),
        ("own", ColumnAlign::Right),
        ("what it is", ColumnAlign::Left),
        ("at", ColumnAlign::Left),
        ("reached from", ColumnAlign::Left),
    ]);
    for one in shown {
        table.row(vec![
            measure.show(one.retained),
            measure.show(one.size),
            one.what.clone(),
            match one.at {
                0 => String::new(),
                at => format!("{at:#x}"),
            },
            one.root.clone(),
        ]);
    }
    if raw {
        return table.render(style);
    }
    let head = format!(
        "{}: what would be freed with each block\n\n",
        printable(name)
    );
    Ok(match table.is_empty() {
        true => head + "no block is reachable only through another one\n",
        false => head + &table.render(style)?,
    })
}

/// Writes the pointers to a block and the path to it, with at most `limit` pointers and `limit`
/// steps of the path.
///
/// # Errors
/// The report can't be written in this format.
pub fn heapwalk_who(
    found: &BlockReferrers,
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let limit = limit.unwrap_or(usize::MAX);
    if style.format == ReportFormat::Json {
        let referrers = found.referrers.iter();
        return crate::json::text(json!({
            "block": found.block, "way": found.way, "has_root": found.has_root,
            "referrers": referrers
                .map(|(source, offset)| json!({"in": source, "offset": offset}))
                .collect::<Vec<_>>(),
        }));
    }
    let mut table =
        ReportTable::new(&[("offset", ColumnAlign::Right), ("from", ColumnAlign::Left)]);
    for (source, offset) in found.referrers.iter().take(limit) {
        table.row(vec![format!("+{offset}"), source.clone()]);
    }
    if let Some(rest) = found
        .referrers
        .len()
        .checked_sub(limit)
        .filter(|&rest| rest > 0)
    {
        table.row(vec![String::new(), format!("(other: {rest} more)")]);
    }
    if style.format == ReportFormat::Csv {
        return table.render(style);
    }
    let mut text = format!("{}\n\n", printable(&found.block));
    match (found.has_root, found.way.is_empty()) {
        (false, true) => text += "it cannot be reached from a root\n",
        (has_root, _) => {
            text += match has_root {
                true => "Path to it from a root\n",
                false => "Path to it from a leaked block\n",
            };
            // The beginning and the end of a long path matter most.
            let count = found.way.len();
            let first = (limit / 2).min(count);
            let last = limit.saturating_sub(first).min(count - first);
            for (depth, step) in found.way.iter().enumerate() {
                let indent = "  ".repeat(depth.min(40));
                if depth < first || depth + last >= count {
                    text += &format!("{indent}{}\n", printable(step));
                } else if depth == first {
                    let left_out = plural(&(count - first - last).to_string(), "block");
                    text += &format!("{indent}({left_out} more)\n");
                }
            }
        }
    }
    text += "\nEverything that points to it\n";
    match table.is_empty() {
        true => text += "nothing\n",
        false => text += &table.render(style)?,
    }
    Ok(text)
}
