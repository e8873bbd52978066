//! Curves and bars of characters: dots of braille, and blocks of eighths.
//!
//! Format: Unicode 15, "Braille Patterns" (U+2800 and one bit for each dot) and "Block Elements".

/// A grid of dots, two by four in each character. The lowest row of dots is row 0.
pub struct DotGrid {
    cells: Vec<Vec<u8>>,
}

/// The bits of a character's dots, by row and column.
const DOT_BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

impl DotGrid {
    /// Makes an empty grid with these numbers of columns and rows of characters.
    #[must_use]
    pub fn new(columns: usize, rows: usize) -> Self {
        Self {
            cells: vec![vec![0; columns]; rows],
        }
    }

    /// Sets the dot in column `x` and row `y`, which must be in the grid.
    pub fn set(&mut self, x: usize, y: usize) {
        let row = self.cells.len() - 1 - y / 4;
        self.cells[row][x / 2] |= DOT_BITS[3 - y % 4][x % 2];
    }

    /// Returns the lines of characters, the highest first.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let braille = |&dots: &u8| char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ');
        let line = |cells: &Vec<u8>| cells.iter().map(braille).collect();
        self.cells.iter().map(line).collect()
    }
}

/// Returns a bar whose length is given in eighths of a character.
#[must_use]
pub fn bar(eighths: usize) -> String {
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + rest
}

const BLOCK_GLYPHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns a sparkline of values with at most `most` characters. If there are more values, a
/// character shows the largest of its values. The scale begins at zero, so that a small change of a
/// large value looks small.
#[must_use]
pub fn sparkline(values: &[i128], most: usize) -> String {
    let count = values.len().min(most.max(1));
    let largest = values.iter().copied().max().unwrap_or(0).max(1) as f64;
    let character = |at: usize| {
        let own = &values[at * values.len() / count..(at + 1) * values.len() / count];
        let value = own.iter().copied().max().unwrap_or(0).max(0) as f64;
        BLOCK_GLYPHS[((value / largest * 7.0).round() as usize).min(7)]
    };
    (0..count).map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_begins_at_zero_and_fits() {
        assert_eq!(sparkline(&[0, 1, 2, 4, 8], 9), "▁▂▃▅█");
        assert_eq!(sparkline(&[-5, 0], 9), "▁▁");
        assert_eq!(sparkline(&[0, 8, 0, 0, 0, 4], 3), "█▁▅");
        assert_eq!(sparkline(&[], 3), "");
    }

    #[test]
    fn each_dot_has_its_place() {
        let mut dots = DotGrid::new(2, 2);
        for (x, y) in [(0, 0), (1, 3), (2, 4), (3, 7)] {
            dots.set(x, y);
        }
        assert_eq!(dots.lines(), ["⠀⡈", "⡈⠀"]);
        assert_eq!([bar(0), bar(3), bar(8), bar(17)], ["", "▍", "█", "██▏"]);
    }
}
