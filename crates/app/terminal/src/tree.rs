//! Draws the tree.

use std::collections::{BTreeMap, BTreeSet};

use ratatui_core::layout::Rect;

use super::canvas::{ScreenCanvas, short_names};
use super::outline::visible_lines;
use super::state::ViewState;
use super::view_data::ViewData;

/// Draws the tree into an area of the screen.
pub(super) fn draw(
    canvas: &mut ScreenCanvas<'_>,
    area: Rect,
    data: &ViewData,
    state: &mut ViewState,
) {
    let lines = visible_lines(&data.nodes, &state.unfolded);
    let head = "     TOTAL       OWN  FUNCTION";
    canvas.put(
        area.x + 1,
        area.y,
        area.width - 1,
        head,
        canvas.style.muted(),
    );
    let height = usize::from(area.height.saturating_sub(1));
    state.page = height;
    let at = lines.iter().position(|line| Some(line.path) == state.node);
    let at = at.unwrap_or(0);
    let first = at.saturating_sub(height.saturating_sub(1).min(height / 2));
    let first = first.min(lines.len().saturating_sub(height));
    let measure = canvas.measure(data);
    let shown = lines.iter().enumerate().skip(first).take(height);
    let names: BTreeSet<&str> = shown
        .clone()
        .map(|(_, line)| &*data.nodes[line.node].name)
        .collect();
    // Each indentation leaves another width. At each width, the names of all rows are made to
    // differ.
    let mut at_width = BTreeMap::new();
    for (y, (row, line)) in (area.y + 1..).zip(shown) {
        let node = &data.nodes[line.node];
        let mark = match (line.has_more, line.is_unfolded) {
            (false, _) => "  ",
            (true, false) => "▸ ",
            (true, true) => "▾ ",
        };
        let own = match node.own {
            0 => String::new(),
            own => measure.show(own),
        };
        let depth = "  ".repeat(node.depth.min(40));
        let before = format!("{:>10} {own:>9}  {depth}{mark}", measure.show(node.total));
        let style = canvas.row_style(row == at);
        let used = canvas.line(area, y, &before, style);
        let width = area.width.saturating_sub(used);
        let names = at_width.entry(width).or_insert_with(|| {
            let short = short_names(names.iter().copied(), width);
            names.iter().copied().zip(short).collect::<BTreeMap<_, _>>()
        });
        let name = names.get(&*node.name).map_or("", String::as_str);
        canvas.put(area.x + used, y, width, name, style);
    }
    if lines.is_empty() {
        canvas.put(
            area.x + 1,
            area.y + 1,
            area.width - 1,
            "nothing to show",
            canvas.style.muted(),
        );
    }
}
