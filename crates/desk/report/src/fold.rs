//! Folds paths without branches into one row, because a call tree of C++ or Rust would otherwise be
//! indented to the edge of the screen.

use heapprof_analysis::{PlaceId, tree::TreeRow};
use heapprof_text::cut;
use unicode_width::UnicodeWidthStr;

use crate::table::printable;

/// Marks for the rows of a tree. A mark means that the row is shown together with the next row.
/// Rows are in pre-order. A mark is one bit, because there may be very many rows.
#[derive(Default)]
pub(crate) struct RowFolds {
    bits: Vec<u64>,
    rows: usize,
    /// The path to the last row. Each row on the path has its number, the number of its children so
    /// far, and whether it has no value of its own.
    open: Vec<(usize, usize, bool)>,
}

impl RowFolds {
    /// Adds the next row.
    pub(crate) fn add(&mut self, row: &TreeRow) {
        self.close(row.depth);
        if let Some((_, children, _)) = self.open.last_mut() {
            *children += 1;
        }
        let passes = row.own.iter().all(|&own| own == 0);
        self.open.push((self.rows, 0, passes));
        if self.rows.is_multiple_of(64) {
            self.bits.push(0);
        }
        self.rows += 1;
    }

    /// Completes the marks after the last row.
    pub(crate) fn finish(mut self) -> Self {
        self.close(0);
        self
    }

    fn close(&mut self, depth: usize) {
        for (at, children, passes) in self.open.drain(depth.min(self.open.len())..) {
            if passes && children == 1 {
                self.bits[at / 64] |= 1 << (at % 64);
            }
        }
    }

    fn goes_on(&self, at: usize) -> bool {
        self.bits
            .get(at / 64)
            .is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }
}

/// Joins the rows of a tree to paths, row by row. A row without a mark ends a path.
pub(crate) struct RowPaths<'f> {
    folds: &'f RowFolds,
    at: usize,
    /// The number of indentation steps that folding saves at each depth.
    saved: Vec<usize>,
    path: RowPath,
}

/// Rows of the tree that are shown as one row.
#[derive(Default)]
pub(crate) struct RowPath {
    /// The places from the outermost to the innermost. All places have the same total, and only the
    /// last one has a value of its own.
    pub(crate) places: Vec<PlaceId>,
    /// The number of steps by which the path is indented.
    pub(crate) depth: usize,
}

impl<'f> RowPaths<'f> {
    pub(crate) fn new(folds: &'f RowFolds) -> Self {
        Self {
            folds,
            at: 0,
            saved: Vec::new(),
            path: RowPath::default(),
        }
    }

    /// Adds the next row. Returns the path if the row ends it.
    pub(crate) fn next(&mut self, row: &TreeRow) -> Option<&RowPath> {
        if self.at == 0 || !self.folds.goes_on(self.at - 1) {
            self.path.places.clear();
            self.saved.truncate(row.depth);
            let above = self.saved.last().copied().unwrap_or(0);
            self.saved.resize(row.depth, above);
            self.path.depth = row.depth - above;
        }
        let above = self.saved.last().copied().unwrap_or(0);
        // Children of the path are indented by one step from its row.
        let within = usize::from(!self.path.places.is_empty());
        self.saved.push(above + within);
        self.path.places.push(row.place);
        let goes_on = self.folds.goes_on(self.at);
        self.at += 1;
        (!goes_on).then_some(&self.path)
    }
}

/// Returns the names of a path in `room` columns. If there is not enough space for all names, only
/// the first and the last names are shown, with the number of names between them. If there is not
/// even enough space for two names, these are cut.
pub(crate) fn names(names: &[String], reverse: bool, room: usize) -> String {
    let between = if reverse { " ← " } else { " → " };
    let width = |name: &String| printable(name).width() + 3;
    if names.iter().map(width).sum::<usize>() <= room.saturating_add(3) {
        return names.join(between);
    }
    // Names are taken from both ends in turn, as long as they fit. The first and the last are
    // always taken.
    let (mut first, mut last) = (1, 1);
    let more = format!("({} more)", names.len()).len() + 3;
    let mut taken = width(&names[0]) + width(&names[names.len() - 1]) + more;
    while first + last < names.len() {
        let next = match last <= first {
            true => names.len() - 1 - last,
            false => first,
        };
        taken += width(&names[next]);
        // Every name except the last has an arrow after it.
        if taken > room.saturating_add(3) {
            break;
        }
        match last <= first {
            true => last += 1,
            false => first += 1,
        }
    }
    let hidden = match names.len() - first - last {
        0 => String::new(),
        hidden => format!("({hidden} more){between}"),
    };
    let start = names[..first].join(between);
    let end = names[names.len() - last..].join(between);
    let left = room.saturating_sub(hidden.width() + 3);
    // The end matters more to the reader, so it gets more room.
    let start = cut(&start, (left / 3).max(left.saturating_sub(end.width())));
    let end = cut(&end, left.saturating_sub(start.width()));
    format!("{start}{between}{hidden}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folds rows in pre-order, each given as its depth and its own value. Returns the number of
    /// rows and the indentation of each path.
    fn shown(rows: &[(usize, i64)], fold: bool) -> Vec<(usize, usize)> {
        let row = |&(depth, own)| TreeRow {
            depth,
            own: vec![own],
            ..TreeRow::default()
        };
        let mut folds = RowFolds::default();
        if fold {
            rows.iter().for_each(|r| folds.add(&row(r)));
        }
        let folds = folds.finish();
        let mut paths = RowPaths::new(&folds);
        let path = |r| {
            let path = paths.next(&row(r))?;
            Some((path.places.len(), path.depth))
        };
        rows.iter().filter_map(path).collect()
    }

    #[test]
    fn what_does_not_branch_is_one_row() {
        // These are the rows: main a b, c d, x, y z, other, p q.
        let rows = [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 0),
            (4, 0),
            (5, 4),
            (5, 0),
            (6, 5),
            (0, 2),
            (0, 0),
            (1, 3),
        ];
        assert_eq!(
            shown(&rows, true),
            [(3, 0), (2, 1), (1, 2), (2, 2), (1, 0), (2, 0)]
        );
        let each: Vec<_> = rows.iter().map(|&(depth, _)| (1, depth)).collect();
        assert_eq!(shown(&rows, false), each);
        // There are more rows than a word of the bit set has bits.
        let deep: Vec<_> = (0..200)
            .map(|depth| (depth, i64::from(depth == 199)))
            .collect();
        assert_eq!(shown(&deep, true), [(200, 0)]);
    }

    #[test]
    fn long_paths_are_cut_in_the_middle() {
        let long: Vec<String> = (0..50).map(|n| format!("function_number_{n}")).collect();
        assert_eq!(
            names(&long, true, 86),
            "function_number_0 ← (47 more) ← function_number_48 ← function_number_49"
        );
        assert_eq!(
            names(&long[..3], false, 86),
            "function_number_0 → function_number_1 → function_number_2"
        );
        for (room, expected) in [
            (50, "function_number_0 → (1 more) → function_number_2"),
            (40, "fun…ber_0 → (1 more) → function_number_2"),
            (24, "f…0 → (1 more) → fu…er_2"),
        ] {
            let shown = names(&long[..3], false, room);
            assert!(shown.width() <= room, "{shown}");
            assert_eq!(shown, expected);
        }
    }
}
