//! The command `list`: source lines of routines, with their values.

use std::io::Write;

use super::code::{CodeReport, clean_file_name};
use super::routine_lines::RoutineLines;

impl CodeReport<'_> {
    /// Prints the source lines of a routine. `name` is its shortened name.
    pub(super) fn list(
        &self,
        name: &str,
        lines: &RoutineLines,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        writeln!(
            out,
            "ROUTINE ====================== {name} in {}\n{:>6} {:>6} Total {} (flat / cumulative)",
            clean_file_name(&lines.file),
            self.measure.show(lines.total.flat),
            self.measure.show(lines.total.cum),
            self.measure.unit(),
        )?;
        for (number, text) in lines.shown() {
            if number == lines.first {
                writeln!(out, "---")?;
            }
            let values = lines.of_line.get(&number).copied().unwrap_or_default();
            writeln!(
                out,
                "{:>6} {:>6} {number:>4}: {text}",
                self.show_or(values.flat, "."),
                self.show_or(values.cum, "."),
            )?;
            if number == lines.last {
                writeln!(out, "---")?;
            }
        }
        Ok(())
    }
}
