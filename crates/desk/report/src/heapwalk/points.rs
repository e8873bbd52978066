//! Writes what points to a block, and what would go if a block went.

use serde_json::json;

use crate::error::ReportError;
use crate::measure::{UnitFormatter, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// A block, and who points to it.
#[derive(Clone, Debug, Default)]
pub struct BlockReferrers {
    /// The block in words: its address, size, state and content.
    pub block: String,
    /// What leads to it, down to the block itself, each in words: from a root, or from the block
    /// that leaked first. Empty if nothing does.
    pub way: Vec<String>,
    /// Whether the way begins at a root.
    pub has_root: bool,
    /// All words that point to it: what each is in, and how far into the block it leads.
    pub referrers: Vec<(String, u64)>,
}

/// A block, or what is outside of malloc's memory, through which others are reached.
#[derive(Clone, Debug, Default)]
pub struct RetainedBlock {
    /// What would go with it, in bytes, with its own.
    pub retained: u64,
    /// Its own bytes; 0 for a variable or a stack.
    pub size: u64,
    /// Where it is.
    pub at: u64,
    /// What it is: its class, or its kind of content.
    pub what: String,
    /// The root from which it is reached, in words; empty if it is one.
    pub root: String,
}

/// Writes what would go if a block went, with at most so many rows. A block may be in what another
/// one retains, so the rows do not add up.
///
/// # Errors
/// It can't be written in this format, or the unit is none of bytes.
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
    let head = format!("{}: what would go if a block went\n\n", printable(name));
    Ok(match table.is_empty() {
        true => head + "no block is reached through another one alone\n",
        false => head + &table.render(style)?,
    })
}

/// Writes who points to a block, with at most so many steps of the way and so many words.
///
/// # Errors
/// It can't be written in this format.
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
        ReportTable::new(&[("into it", ColumnAlign::Right), ("from", ColumnAlign::Left)]);
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
        (false, true) => text += "nothing leads there from a root\n",
        (has_root, _) => {
            text += match has_root {
                true => "The way there, from a root\n",
                false => "The way there, from a block that has leaked\n",
            };
            // The beginning and the end say most of a long way.
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
    text += "\nAll that points to it\n";
    match table.is_empty() {
        true => text += "nothing\n",
        false => text += &table.render(style)?,
    }
    Ok(text)
}
