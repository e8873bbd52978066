//! `heapwalk`: what of a heap has leaked, and who points where.

use heapprof_heapwalk::{ArenaSum, State, Summary};
use serde_json::{Value, json};

use crate::error::Error;
use crate::measure::{Measure, percent, plural};
use crate::style::{Format, Style};
use crate::table::{Align, Table, printable};

/// A walk.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// What was walked, as it was named.
    pub name: String,
    /// How it went, in words: how long the process was held, what is missing.
    pub notes: Vec<String>,
    /// The heap in sums.
    pub summary: Summary,
}

/// A block, and who points to it.
#[derive(Clone, Debug, Default)]
pub struct PointedTo {
    /// The block in words: its address, size, state and content.
    pub block: String,
    /// What leads to it, from a root down to the block itself, each in words. Empty if nothing
    /// does.
    pub way: Vec<String>,
    /// All words that point to it: what each is in, and how far into the block it leads.
    pub referrers: Vec<(String, u64)>,
}

/// The states in the order of reports.
const STATES: [State; 5] = [
    State::Leaked,
    State::Indirect,
    State::Maybe,
    State::Reached,
    State::Free,
];

/// What each state means.
fn meaning(state: State) -> &'static str {
    match state {
        State::Leaked => "nothing leads there",
        State::Indirect => "only what has leaked leads there",
        State::Maybe => "only pointers into the middle lead there",
        State::Reached => "roots lead there",
        State::Free => "malloc has it: bins, caches, top",
    }
}

/// Writes the summary of a walk, with at most so many rows of what leaked.
///
/// # Errors
/// It can't be written in this format, or the unit is none of bytes.
pub fn heapwalk(walk: &Walk, limit: Option<usize>, style: &Style) -> Result<String, Error> {
    let summary = &walk.summary;
    let shown = limit.unwrap_or(usize::MAX).min(summary.groups.len());
    if style.format == Format::Json {
        return crate::json::text(document(walk, shown));
    }
    let raw = style.format == Format::Csv;
    let measure = match raw {
        true => Measure::raw(),
        false => Measure::new("bytes", style.unit.as_deref())?,
    };
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
    let mut states = Table::new(&[
        ("state", Align::Left),
        ("blocks", Align::Right),
        ("bytes", Align::Right),
        ("share", Align::Right),
        ("what it means", Align::Left),
    ]);
    for state in STATES {
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
        text += "\nWhat leaked, by size and content\n";
        text += if style.format == Format::Markdown {
            "\n"
        } else {
            ""
        };
        text += &groups.render(style)?;
    }
    Ok(text)
}

fn groups(summary: &Summary, shown: usize, measure: &Measure) -> Table {
    let mut table = Table::new(&[
        ("bytes", Align::Right),
        ("blocks", Align::Right),
        ("each", Align::Right),
        ("state", Align::Left),
        ("content", Align::Left),
        ("the first at", Align::Left),
    ]);
    for group in &summary.groups[..shown] {
        table.row(vec![
            measure.show(group.sum.bytes),
            group.sum.blocks.to_string(),
            measure.show(group.size),
            group.state.name().to_string(),
            group.content.name().to_string(),
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

/// Writes what malloc itself would say of its arenas.
///
/// # Errors
/// It can't be written in this format, or the unit is none of bytes.
pub fn heapwalk_allocator(walk: &Walk, style: &Style) -> Result<String, Error> {
    if style.format == Format::Json {
        let arenas = walk.summary.arenas.iter().map(arena);
        return crate::json::text(json!({
            "name": walk.name, "notes": walk.notes, "arenas": arenas.collect::<Vec<_>>(),
        }));
    }
    let raw = style.format == Format::Csv;
    let measure = match raw {
        true => Measure::raw(),
        false => Measure::new("bytes", style.unit.as_deref())?,
    };
    let mut table = Table::new(&[("arena", Align::Left)]);
    for name in [
        "system",
        "in use",
        "cached",
        "fast",
        "free",
        "largest free",
        "top",
        "in use of it",
    ] {
        table.column(name, Align::Right);
    }
    for arena in &walk.summary.arenas {
        let name = match arena.at {
            0 => "(mapped)".to_string(),
            at => format!("{at:#x}"),
        };
        let share = percent(
            i128::from(arena.in_use.bytes),
            i128::from(arena.system_memory),
        );
        table.row(vec![
            name,
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
    if raw {
        return table.render(style);
    }
    let mut text = format!("{}\n", printable(&walk.name));
    for note in &walk.notes {
        text += &format!("{}\n", printable(note));
    }
    Ok(text + "\n" + &table.render(style)?)
}

/// A block through which others are reached.
#[derive(Clone, Debug, Default)]
pub struct RetainedBlock {
    /// What would go with it, in bytes, with its own.
    pub retained: u64,
    /// Its own bytes.
    pub size: u64,
    /// Where it is.
    pub at: u64,
    /// What is in it.
    pub content: &'static str,
    /// The root from which it is reached, in words.
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
    style: &Style,
) -> Result<String, Error> {
    let shown = &blocks[..limit.unwrap_or(usize::MAX).min(blocks.len())];
    if style.format == Format::Json {
        let rows = shown.iter().map(|one| {
            json!({
                "retained": one.retained, "size": one.size, "at": one.at,
                "content": one.content, "root": one.root,
            })
        });
        return crate::json::text(json!({"name": name, "rows": rows.collect::<Vec<_>>()}));
    }
    let raw = style.format == Format::Csv;
    let measure = match raw {
        true => Measure::raw(),
        false => Measure::new("bytes", style.unit.as_deref())?,
    };
    let mut table = Table::new(&[
        ("retained", Align::Right),
        ("own", Align::Right),
        ("content", Align::Left),
        ("at", Align::Left),
        ("reached from", Align::Left),
    ]);
    for one in shown {
        table.row(vec![
            measure.show(one.retained),
            measure.show(one.size),
            one.content.to_string(),
            format!("{:#x}", one.at),
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

/// Writes who points to a block.
///
/// # Errors
/// It can't be written in this format.
pub fn heapwalk_who(found: &PointedTo, style: &Style) -> Result<String, Error> {
    if style.format == Format::Json {
        let referrers = found.referrers.iter();
        return crate::json::text(json!({
            "block": found.block, "way": found.way,
            "referrers": referrers
                .map(|(source, offset)| json!({"in": source, "offset": offset}))
                .collect::<Vec<_>>(),
        }));
    }
    let mut table = Table::new(&[("into it", Align::Right), ("from", Align::Left)]);
    for (source, offset) in &found.referrers {
        table.row(vec![format!("+{offset}"), source.clone()]);
    }
    if style.format == Format::Csv {
        return table.render(style);
    }
    let mut text = format!("{}\n\n", printable(&found.block));
    match found.way.is_empty() {
        true => text += "nothing leads there from a root\n",
        false => {
            text += "The way there, from a root\n";
            for (depth, step) in found.way.iter().enumerate() {
                text += &format!("{}{}\n", "  ".repeat(depth.min(40)), printable(step));
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

fn arena(arena: &ArenaSum) -> Value {
    json!({
        "at": arena.at, "system_memory": arena.system_memory, "in_use": arena.in_use.bytes,
        "in_use_blocks": arena.in_use.blocks, "cached": arena.cached.bytes,
        "cached_blocks": arena.cached.blocks, "fast": arena.fast.bytes,
        "fast_blocks": arena.fast.blocks, "free": arena.free.bytes,
        "free_blocks": arena.free.blocks, "largest_free": arena.largest_free, "top": arena.top,
    })
}

fn document(walk: &Walk, shown: usize) -> Value {
    let summary = &walk.summary;
    let states = STATES.iter().map(|&state| {
        let sum = &summary.states[state as usize];
        json!({"state": state.name(), "blocks": sum.blocks, "bytes": sum.bytes})
    });
    let groups = summary.groups[..shown].iter().map(|group| {
        json!({
            "state": group.state.name(), "size": group.size, "content": group.content.name(),
            "blocks": group.sum.blocks, "bytes": group.sum.bytes, "example": group.example,
        })
    });
    json!({
        "name": walk.name, "notes": walk.notes, "unwalked": summary.unwalked,
        "states": states.collect::<Vec<_>>(), "groups": groups.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use heapprof_heapwalk::{Content, Group, Sum};

    use super::*;

    #[test]
    fn rows_add_up_to_what_leaked() {
        let group = |size: u64, blocks: u64, state| Group {
            state,
            size,
            content: Content::Text,
            sum: Sum {
                blocks,
                bytes: size * blocks,
            },
            example: 0x1000,
        };
        let mut summary = Summary {
            groups: vec![
                group(1000, 4, State::Leaked),
                group(24, 2, State::Maybe),
                group(8, 1, State::Leaked),
            ],
            ..Summary::default()
        };
        summary.states[State::Leaked as usize] = Sum {
            blocks: 5,
            bytes: 4008,
        };
        let walk = Walk {
            name: "pid:7".to_string(),
            summary,
            ..Walk::default()
        };
        let text = heapwalk(&walk, Some(1), &Style::default()).unwrap();
        assert!(
            text.starts_with("pid:7: 5 blocks in 0 arenas, 3.91KiB\n"),
            "{text}"
        );
        assert!(text.contains("3.91KiB       4  1000B  leaked"), "{text}");
        assert!(
            text.contains("56B       3         (other: 2 more)"),
            "{text}"
        );
        let nothing = heapwalk(&Walk::default(), None, &Style::default()).unwrap();
        assert!(nothing.contains("nothing has leaked"), "{nothing}");
    }
}
