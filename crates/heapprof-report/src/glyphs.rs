//! Curves and bars of characters: dots of braille, and blocks of eighths.
//!
//! Format: Unicode 15, "Braille Patterns" (U+2800 and one bit for each dot) and "Block Elements".

/// A grid of dots, two by four in each character. The lowest row of dots has the number 0.
pub struct Dots {
    cells: Vec<Vec<u8>>,
}

/// The bits of a character's dots, by row and column.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

impl Dots {
    /// An empty grid of so many columns and rows of characters.
    #[must_use]
    pub fn new(columns: usize, rows: usize) -> Self {
        Self {
            cells: vec![vec![0; columns]; rows],
        }
    }

    /// Sets the dot in column `x` and row `y`, which are in the grid.
    pub fn set(&mut self, x: usize, y: usize) {
        let row = self.cells.len() - 1 - y / 4;
        self.cells[row][x / 2] |= DOTS[3 - y % 4][x % 2];
    }

    /// The lines of characters, the highest first.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let braille = |&dots: &u8| char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ');
        let line = |cells: &Vec<u8>| cells.iter().map(braille).collect();
        self.cells.iter().map(line).collect()
    }
}

/// A bar of so many eighths of a character.
#[must_use]
pub fn bar(eighths: usize) -> String {
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dot_has_its_place() {
        let mut dots = Dots::new(2, 2);
        for (x, y) in [(0, 0), (1, 3), (2, 4), (3, 7)] {
            dots.set(x, y);
        }
        assert_eq!(dots.lines(), ["⠀⡈", "⡈⠀"]);
        assert_eq!([bar(0), bar(3), bar(8), bar(17)], ["", "▍", "█", "██▏"]);
    }
}
