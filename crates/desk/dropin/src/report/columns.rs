//! Aligns columns of text to the right, as Go's text/tabwriter does with AlignRight. A column is as
//! wide as its widest cell.
//!
//! A tab ends a cell. The text after a line's last tab is not a cell and is not aligned. A column
//! ends at the first line without a cell in it.

/// Lays out `text`. Cells are aligned to the right, with one blank before each.
pub(super) fn align_right(text: &str) -> String {
    let mut lines: Vec<Vec<&str>> = Vec::new();
    // A form feed ends a line and all columns with it.
    let mut ends = Vec::new();
    for page in text.split_inclusive('\x0C') {
        let body = page.strip_suffix('\x0C').unwrap_or(page);
        let rows = body
            .split('\n')
            .map(|line| line.split(['\t', '\x0B']).collect());
        lines.extend(rows);
        ends.push(lines.len());
    }
    // The text after a line's last tab is not a cell.
    let mut widths: Vec<Vec<usize>> = lines.iter().map(|line| vec![0; line.len() - 1]).collect();
    let mut start = 0;
    for end in ends {
        column_widths(&lines[start..end], &mut widths[start..end], 0);
        start = end;
    }
    let mut out = String::with_capacity(text.len() * 2);
    let last = lines.len().saturating_sub(1);
    for (i, (line, widths)) in lines.iter().zip(&widths).enumerate() {
        for (cell, &width) in line.iter().zip(widths) {
            let blanks = width - cell.chars().count();
            out.extend(std::iter::repeat_n(' ', blanks));
            out.push_str(cell);
        }
        out.push_str(line.last().unwrap_or(&""));
        if i < last {
            out.push('\n');
        }
    }
    out
}

/// Sets the widths of the cells from column `first` on. Consecutive lines that have a cell in a
/// column share its width.
fn column_widths(lines: &[Vec<&str>], widths: &mut [Vec<usize>], first: usize) {
    // The columns that are still to be measured, each with its lines. The code does not recurse,
    // because lines may have any number of cells.
    let mut blocks = vec![(first, 0, lines.len())];
    while let Some((column, start, end)) = blocks.pop() {
        let has = |i: usize| column + 1 < lines[i].len();
        let mut at = start;
        while at < end {
            if !has(at) {
                at += 1;
                continue;
            }
            let stop = (at..end).find(|&i| !has(i)).unwrap_or(end);
            let widest = lines[at..stop]
                .iter()
                .map(|line| line[column].chars().count() + 1)
                .max()
                .unwrap_or(0);
            for widths in &mut widths[at..stop] {
                widths[column] = widest;
            }
            blocks.push((column + 1, at, stop));
            at = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::align_right;

    /// Checks layouts against layouts of Go's text/tabwriter.
    #[test]
    fn columns() {
        let table = [
            ("", ""),
            ("a\n", "a\n"),
            (
                "k:\t Total 1\n \t5B (50%):\t x\n \t10.5kB (1%):\t y\n\n",
                " k: Total 1\n       5B (50%): x\n    10.5kB (1%): y\n\n",
            ),
            ("long:\tx\n\ns:\tx\n", " long:x\n\n s:x\n"),
            ("é\tb\nabc\tb\n", "   éb\n abcb\n"),
            ("a\tb\x0Cabc\td\n", " ab\n abcd\n"),
        ];
        for (text, expected) in table {
            assert_eq!(align_right(text), expected, "{text:?}");
        }
    }
}
