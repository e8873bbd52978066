//! Fast output of large texts: text pieces are built once and copied often, and numbers are written
//! without formatting macros.

use heapprof_text::decimal;
use std::io::{self, Write};

/// Text pieces in one string, numbered from 0.
#[derive(Default)]
pub(super) struct TextPieces {
    text: String,
    end: Vec<usize>,
}

impl TextPieces {
    /// Returns the buffer to which the next piece is appended.
    pub(super) fn text(&mut self) -> &mut String {
        &mut self.text
    }

    /// Ends a piece, and returns its number.
    pub(super) fn end(&mut self) -> usize {
        self.end.push(self.text.len());
        self.end.len() - 1
    }

    pub(super) fn get(&self, piece: usize) -> &str {
        let start = if piece == 0 { 0 } else { self.end[piece - 1] };
        &self.text[start..self.end[piece]]
    }
}

/// Buffer that collects text and passes it to a writer in large parts.
pub(super) struct TextSpool<'a> {
    text: String,
    out: &'a mut dyn Write,
}

const SPOOL_CHUNK_SIZE: usize = 64 << 10;

impl<'a> TextSpool<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self {
            text: String::with_capacity(2 * SPOOL_CHUNK_SIZE),
            out,
        }
    }

    /// Returns the buffer to which text is appended.
    pub(super) fn text(&mut self) -> &mut String {
        &mut self.text
    }

    /// Writes the buffered text if it is large enough.
    pub(super) fn spill(&mut self) -> io::Result<()> {
        if self.text.len() >= SPOOL_CHUNK_SIZE {
            self.out.write_all(self.text.as_bytes())?;
            self.text.clear();
        }
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.out.write_all(self.text.as_bytes())
    }
}

/// Appends a number.
pub(super) fn push_number(out: &mut String, value: i128) {
    let mut digits = [0u8; 40];
    out.push_str(decimal(&mut digits, value));
}

/// Appends a number, right-aligned in `width` characters.
pub(super) fn push_padded(out: &mut String, value: i64, width: usize) {
    let mut digits = [0u8; 40];
    let text = decimal(&mut digits, i128::from(value));
    push_blanks(out, width.saturating_sub(text.len()));
    out.push_str(text);
}

/// Appends blanks.
pub(super) fn push_blanks(out: &mut String, mut blanks: usize) {
    const BLANKS: &str = "                ";
    while blanks > 0 {
        let some = blanks.min(BLANKS.len());
        out.push_str(&BLANKS[..some]);
        blanks -= some;
    }
}

/// Appends a text, right-aligned in `width` characters.
pub(super) fn push_aligned(out: &mut String, text: &str, width: usize) {
    push_blanks(out, width.saturating_sub(text.chars().count()));
    out.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for value in [0, 7, -7, 10, i64::MAX, i64::MIN, 1234567890123] {
            let mut text = String::new();
            push_number(&mut text, i128::from(value));
            assert_eq!(text, value.to_string());
            text.clear();
            push_padded(&mut text, value, 10);
            assert_eq!(text, format!("{value:>10}"));
        }
        let mut text = String::new();
        push_number(&mut text, u64::MAX as i128);
        push_aligned(&mut text, "µs", 4);
        assert_eq!(text, "18446744073709551615  µs");
    }
}
