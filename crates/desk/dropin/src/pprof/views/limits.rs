//! The limit on the size of a view.

use std::io::{Error, Result, Write};

use crate::report::{InstructionRow, ListingRow};

/// Bytes that a row of a listing takes besides its texts.
const ROW_BYTES: usize = 64;

/// Counts the bytes of a view up to a limit.
pub(super) struct ViewBudget {
    max_bytes: usize,
    used: usize,
}

impl ViewBudget {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, used: 0 }
    }

    fn take(&mut self, bytes: usize) -> Result<()> {
        self.used = self.used.saturating_add(bytes);
        match self.used <= self.max_bytes {
            true => Ok(()),
            false => Err(Error::other(format!(
                "the answer is larger than {} MiB; filter the functions with f=",
                self.max_bytes >> 20
            ))),
        }
    }
}

/// A text whose size is limited.
pub(super) struct LimitedText {
    pub(super) text: Vec<u8>,
    budget: ViewBudget,
}

impl LimitedText {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            text: Vec::new(),
            budget: ViewBudget::new(max_bytes),
        }
    }
}

impl Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.budget.take(bytes.len())?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The rows of a listing whose size is limited.
pub(super) struct LimitedRows {
    pub(super) rows: Vec<ListingRow>,
    budget: ViewBudget,
}

impl LimitedRows {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            rows: Vec::new(),
            budget: ViewBudget::new(max_bytes),
        }
    }

    pub(super) fn push(&mut self, row: ListingRow) -> Result<()> {
        self.budget.take(size(&row))?;
        self.rows.push(row);
        Ok(())
    }
}

/// Returns about how many bytes of a page a row takes.
fn size(row: &ListingRow) -> usize {
    let below = |row: &InstructionRow| match row {
        InstructionRow::Gap => ROW_BYTES,
        InstructionRow::InlinedCall { text, place } => ROW_BYTES + text.len() + place.len(),
        InstructionRow::Instruction { text, file, .. } => ROW_BYTES + text.len() + file.len(),
    };
    match row {
        ListingRow::Function(function) => ROW_BYTES + function.name.len() + function.file.len(),
        ListingRow::Line(line) => {
            let code: usize = line.instructions.iter().map(below).sum();
            ROW_BYTES + line.text.len() + code
        }
        ListingRow::End => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ListingFunction;

    #[test]
    fn a_view_ends_at_its_limit() {
        let mut text = LimitedText::new(4);
        text.write_all(b"four").unwrap();
        let error = text.write_all(b"!").unwrap_err().to_string();
        assert!(error.contains("larger than 0 MiB"), "{error}");
        let row = |name: &str| {
            ListingRow::Function(ListingFunction {
                name: name.to_string(),
                file: String::new(),
                flat: String::new(),
                cum: String::new(),
                percent: String::new(),
            })
        };
        let mut rows = LimitedRows::new(ROW_BYTES + 4);
        assert!(rows.push(row("12345")).is_err());
        let mut rows = LimitedRows::new(ROW_BYTES + 4);
        rows.push(row("1234")).unwrap();
        assert!(rows.push(row("")).is_err());
        assert_eq!(rows.rows.len(), 1);
    }
}
