//! The command `flame`: the call tree as a picture, drawn by inferno, in one self-contained file.
//!
//! With one profile, the width of a frame is its value. With two profiles, the width is the larger
//! of both values, so that the picture also has frames that vanished. Frames that grew are orange,
//! and frames that shrank are blue. In one profile, frames have the colours of the page's boxes.

use std::io::Write;
use std::rc::Rc;

use heapprof_analysis::{
    CodePlace, PlaceTable,
    tree::{TreeReport, TreeRow},
};
use inferno::flamegraph::{
    self, Options, TextTruncateDirection,
    color::{Color, PaletteMap},
};

use crate::difference::{self, DifferenceSides};
use crate::error::ReportError;
use crate::head;
use crate::measure::UnitFormatter;
use crate::names::{MAX_INLINE_NAME_COLUMNS, NameCache, PlaceLabelFn, short_labels};
use crate::page_colours::{PageColours, ROOT_COLOUR, WeighedNode};
use crate::style::ReportStyle;
use crate::table::printable;

/// The options of a flame graph.
#[derive(Clone, Debug, Default)]
pub struct FlameOptions {
    /// The title; `None` for a title that is made from the metric and the total.
    pub title: Option<String>,
    /// The position of the root.
    pub root: FlameRootPosition,
}

/// The position of the root of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlameRootPosition {
    /// At the top if the tree starts from the leaves or the stacks are higher than a screen,
    /// otherwise at the bottom.
    #[default]
    Auto,
    /// At the top.
    Top,
    /// At the bottom.
    Below,
}

/// The name by which inferno looks up the colour of the frame for the whole profile.
const ROOT_NAME: &str = "";
/// Maximum number of frames that a screen shows one above the other.
const MAX_SCREEN_FRAMES: usize = 50;

/// Writes folded stacks, root first: `main;parse;alloc 96`. With a second profile, each line has
/// both values. It is an error if there are none.
pub fn flame_folded(
    tree: &TreeReport<'_>,
    style: &ReportStyle,
    mut writer: impl Write,
) -> Result<(), ReportError> {
    let mut path = FoldedStack::new(Box::new(CodePlace::label));
    let mut values = String::new();
    let mut is_empty = true;
    tree.each(|row| {
        let stack = path.advance(&tree.places, row);
        if row.own.iter().all(|&v| v == 0) {
            return Ok::<_, ReportError>(());
        }
        is_empty = false;
        values.clear();
        for value in &row.own {
            values.push(' ');
            values.push_str(&value.to_string());
        }
        Ok(writeln!(writer, "{stack}{values}")?)
    })?;
    if is_empty {
        let measure = UnitFormatter::new(&tree.header.sample_type.unit, style.unit.as_deref())?;
        return Err(nothing_to_draw(tree, &measure, style));
    }
    Ok(())
}

/// Returns the error for a graph without any frame. It says why there is none.
fn nothing_to_draw(
    tree: &TreeReport<'_>,
    measure: &UnitFormatter,
    style: &ReportStyle,
) -> ReportError {
    let why = head::empty_reason(&tree.header, measure, style)
        .unwrap_or_else(|| "There is nothing to draw.".to_string());
    // In an error line, the reason is not the beginning of a sentence.
    let why = why.trim_end_matches('.');
    let (first, rest) = why.split_at(why.chars().next().map_or(0, char::len_utf8));
    ReportError::Empty(format!("{}{rest}", first.to_lowercase()))
}

/// The path from the root to the current node, as a folded stack.
struct FoldedStack {
    text: String,
    /// For each node from the root to the current one, the end of its name in `text`.
    end: Vec<usize>,
    names: NameCache,
}

impl FoldedStack {
    /// Makes an empty path. `name` returns the name of a place.
    fn new(name: PlaceLabelFn) -> Self {
        Self {
            text: String::new(),
            end: Vec::new(),
            names: NameCache::new(move |place| frame(&name(place))),
        }
    }

    /// Moves on to the next node in pre-order, and returns its path.
    fn advance(&mut self, places: &PlaceTable, row: &TreeRow) -> &str {
        self.end.truncate(row.depth);
        self.text.truncate(self.end.last().copied().unwrap_or(0));
        if row.depth > 0 {
            self.text.push(';');
        }
        self.text.push_str(self.names.name_of(places, row.place));
        self.end.push(self.text.len());
        &self.text
    }
}

/// Returns the stack and the values of each node that has a value of its own.
fn stacks<'r>(
    places: &PlaceTable,
    rows: &'r [TreeRow],
    mut path: FoldedStack,
) -> Vec<(String, &'r Vec<i64>)> {
    let mut stacks = Vec::new();
    for row in rows {
        let stack = path.advance(places, row);
        if row.own.iter().any(|&v| v != 0) {
            stacks.push((stack.to_string(), &row.own));
        }
    }
    stacks
}

/// Returns a name as a frame of a folded stack. The result has no `;`, which separates frames, and
/// no line break, because each stack is one line.
pub(crate) fn frame(name: &str) -> String {
    let name = printable(name).replace(';', ":");
    if name.trim().is_empty() {
        "(no name)".to_string()
    } else {
        name
    }
}

/// Draws the flame graph as SVG.
pub fn flame_svg(
    tree: &TreeReport<'_>,
    options: &FlameOptions,
    style: &ReportStyle,
    mut writer: impl Write,
) -> Result<(), ReportError> {
    let header = &tree.header;
    let measure = UnitFormatter::new(&header.sample_type.unit, style.unit.as_deref())?;
    // The picture is drawn from all rows at once, because nodes that are too small to be seen were
    // already cut.
    let rows = tree.rows()?;
    let sides = DifferenceSides::new(tree, &rows);
    let two_sided = sides.two_sided();
    if matches!(sides, DifferenceSides::Two)
        && rows.iter().any(|row| row.own.iter().any(|&v| v < 0))
    {
        return Err(ReportError::NegativeSide);
    }
    let name: Rc<dyn Fn(&CodePlace) -> String> =
        short_labels(&tree.places, MAX_INLINE_NAME_COLUMNS, style).into();
    let of_frame = Rc::clone(&name);
    let path = FoldedStack::new(Box::new(move |place| of_frame(place)));
    let stacks = stacks(&tree.places, &rows, path);
    let widest: i128 = stacks
        .iter()
        .map(|(_, own)| {
            let (before, after) = sides.split(own);
            i128::from(before.max(after))
        })
        .sum();
    if widest == 0 {
        return Err(nothing_to_draw(tree, &measure, style));
    }
    // inferno computes with percentages of these numbers in 64 bits.
    let divisor = (widest / (1 << 48)).max(1) as i64;
    // The lines are in the order of the tree, in which equal prefixes are neighbours. inferno needs
    // no other order.
    let lines: Vec<String> = stacks
        .iter()
        .filter_map(|(stack, own)| {
            let (before, after) = sides.split(own);
            let width = before.max(after) / divisor;
            if width == 0 {
                return None;
            }
            let delta = after / divisor - before / divisor;
            Some(match two_sided {
                false => format!("{stack} {width}"),
                // inferno takes the second number as the width, and the second minus the first as
                // the difference.
                true => format!("{stack} {} {width}", width - delta),
            })
        })
        .collect();

    let mut svg = Options::default();
    let given = options.title.clone();
    svg.title = printable(&given.unwrap_or_else(|| title(tree, &measure))).into_owned();
    svg.subtitle = Some(subtitle(tree, &measure, two_sided));
    svg.count_name = printable(&header.sample_type.unit).into_owned();
    svg.name_type = "Function:".to_string();
    svg.factor = divisor as f64;
    svg.deterministic = true;
    // This keeps the order of the lines, the last one first. It is the order of the tree, in which
    // equal prefixes are neighbours, and differences depend on it. If lines were ordered by their
    // texts, equal prefixes need not be neighbours, because a blank sorts before `;`.
    svg.flame_chart = true;
    let mut colours = match two_sided {
        true => PaletteMap::default(),
        false => page_palette(tree, &rows, &*name)?,
    };
    svg.palette_map = Some(&mut colours);
    svg.bgcolors = "#ffffff".parse().ok();
    svg.text_truncate_direction = TextTruncateDirection::Right;
    svg.min_width = 0.05;
    let deep = || rows.iter().any(|row| row.depth >= MAX_SCREEN_FRAMES);
    let on_top = match options.root {
        FlameRootPosition::Auto => tree.reverse || deep(),
        FlameRootPosition::Top => true,
        FlameRootPosition::Below => false,
    };
    if on_top {
        svg.direction = flamegraph::Direction::Inverted;
    }
    let mut drawn = Vec::new();
    flamegraph::from_lines(&mut svg, lines.iter().rev().map(String::as_str), &mut drawn)?;
    let drawn = with_page_style(drawn);
    match two_sided {
        false => writer.write_all(&drawn)?,
        true => {
            let painted = difference::paint(&rows, on_top, &sides, &measure, divisor, &drawn);
            writer.write_all(painted.as_bytes())?;
        }
    }
    Ok(())
}

/// Returns the colours of the frames, by their names.
fn page_palette(
    tree: &TreeReport<'_>,
    rows: &[TreeRow],
    name: &dyn Fn(&CodePlace) -> String,
) -> Result<PaletteMap, ReportError> {
    let modules = tree.modules()?;
    let nodes = rows.iter().map(|row| WeighedNode {
        place: row.place.index(),
        depth: row.depth,
        own: row.own.last().copied().unwrap_or(0),
        total: row.total.last().copied().unwrap_or(0),
    });
    let colours = PageColours::new(nodes, &modules, tree.reverse);
    let mut palette = PaletteMap::default();
    let colour = |[r, g, b]: [u8; 3]| Color { r, g, b };
    palette.insert(ROOT_NAME, colour(ROOT_COLOUR));
    for (place, module) in tree.places.iter().zip(&modules) {
        let of_place = colours.colour(&place.function, module);
        palette.insert(frame(&name(place)), colour(of_place));
    }
    Ok(palette)
}

/// Returns the picture with texts as on the page: a readable "Search", which inferno draws nearly
/// as white as the page, and an ellipsis where a name is cut.
fn with_page_style(drawn: Vec<u8>) -> Vec<u8> {
    const REPLACED: [(&str, &str); 4] = [
        (
            "#search { text-anchor:end; opacity:0.1;",
            "#search { text-anchor:end; opacity:0.8;",
        ),
        ("..</text>", "…</text>"),
        (
            "txt.substring(0, substringLength) + \"..\"",
            "txt.substring(0, substringLength) + \"…\"",
        ),
        (
            "txt.substring(0, x) + \"..\"",
            "txt.substring(0, x) + \"…\"",
        ),
    ];
    match String::from_utf8(drawn) {
        Ok(text) => REPLACED
            .iter()
            .fold(text, |text, (from, to)| text.replace(from, to))
            .into_bytes(),
        Err(other) => other.into_bytes(),
    }
}

fn title(tree: &TreeReport<'_>, measure: &UnitFormatter) -> String {
    let header = &tree.header;
    let name = &header.sample_type.r#type;
    match tree.others.first() {
        Some(after) => format!(
            "{name}: {} before, {} after ({})",
            measure.show(header.net),
            measure.show(after.net),
            measure.show_signed(i128::from(after.net) - i128::from(header.net)),
        ),
        None if header.left_out != 0 && header.net != header.total => format!(
            "{name}: {} of {}",
            measure.show(header.net),
            measure.show(header.total)
        ),
        None => format!("{name}: total {}", measure.show(header.net)),
    }
}

fn subtitle(tree: &TreeReport<'_>, measure: &UnitFormatter, two_sided: bool) -> String {
    let header = &tree.header;
    let mut parts = Vec::new();
    match tree.others.first() {
        Some(after) => parts.push(format!("{} to {}", header.profile, after.profile)),
        None => parts.push(header.profile.clone()),
    }
    if two_sided {
        parts.push("width: the larger side; orange grew, blue shrank".to_string());
    }
    if tree.reverse {
        parts.push("from the leaves".to_string());
    }
    parts.extend(head::sampling(header, tree.others.first()));
    if !header.filters.is_empty() {
        let kept = match tree.others.first() {
            Some(after) => format!(
                "{} before, {} after",
                measure.show(header.net),
                measure.show(after.net)
            ),
            None => measure.show(header.net),
        };
        parts.push(format!("{}: kept {kept}", header.filters.join(" ")));
    }
    printable(&parts.join(" | ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cannot_split_a_stack() {
        assert_eq!(frame("Lfoo;bar"), "Lfoo:bar");
        assert_eq!(frame(" "), "(no name)");
    }
}
