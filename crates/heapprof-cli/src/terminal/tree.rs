//! The tree: which of its nodes are shown, and how.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ratatui::layout::Rect;

use super::answer::Node;
use super::data::Data;
use super::draw::Canvas;
use super::state::State;

/// A node that is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its position.
    pub(super) node: usize,
    /// What stands for the names from the root to it.
    pub(super) path: u64,
    pub(super) has_more: bool,
    pub(super) is_unfolded: bool,
}

/// The nodes whose parents are unfolded, in order.
pub(super) fn shown(nodes: &[Node], unfolded: &HashSet<u64>) -> Vec<Line> {
    let mut lines = Vec::new();
    // The paths of the nodes from the root to the last one, and whether their children are shown.
    let mut paths: Vec<(u64, bool)> = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        paths.truncate(node.depth);
        let (above, is_shown) = paths.last().copied().unwrap_or((0, true));
        let mut hasher = DefaultHasher::new();
        (above, &node.name).hash(&mut hasher);
        let path = hasher.finish();
        let is_unfolded = unfolded.contains(&path);
        paths.push((path, is_shown && is_unfolded));
        if is_shown {
            let has_more = nodes
                .get(at + 1)
                .is_some_and(|next| next.depth > node.depth);
            lines.push(Line {
                node: at,
                path,
                has_more,
                is_unfolded: is_unfolded && has_more,
            });
        }
    }
    lines
}

/// Unfolds the way to the largest node, as far as each step keeps most of the one before.
pub(super) fn unfold_largest(nodes: &[Node], unfolded: &mut HashSet<u64>) {
    let mut most = i64::MAX;
    loop {
        let lines = shown(nodes, unfolded);
        let open = |line: &&Line| line.has_more && !line.is_unfolded;
        let largest = lines
            .iter()
            .filter(open)
            .max_by_key(|line| nodes[line.node].total);
        let Some(line) = largest.filter(|line| {
            let total = nodes[line.node].total;
            most == i64::MAX || total.saturating_mul(2) > most
        }) else {
            return;
        };
        most = nodes[line.node].total;
        unfolded.insert(line.path);
        if lines.len() > 30 {
            return;
        }
    }
}

/// Draws the tree.
pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, data: &Data, state: &mut State) {
    let lines = shown(&data.nodes, &state.unfolded);
    let head = "     TOTAL       OWN  FUNCTION";
    canvas.put(
        area.x + 1,
        area.y,
        area.width - 1,
        head,
        canvas.look.muted(),
    );
    let height = usize::from(area.height.saturating_sub(1));
    state.page = height;
    let at = lines.iter().position(|line| Some(line.path) == state.node);
    let at = at.unwrap_or(0);
    let first = at.saturating_sub(height.saturating_sub(1).min(height / 2));
    let first = first.min(lines.len().saturating_sub(height));
    let measure = canvas.measure(data);
    for (y, (row, line)) in (area.y + 1..).zip(lines.iter().enumerate().skip(first).take(height)) {
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
        let name = canvas.name(&node.name, width);
        canvas.put(area.x + used, y, width, &name, style);
    }
    if lines.is_empty() {
        canvas.put(
            area.x + 1,
            area.y + 1,
            area.width - 1,
            "nothing to show",
            canvas.look.muted(),
        );
    }
}
