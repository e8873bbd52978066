//! The command `disasm`: instructions of routines, below their source lines.

use std::io::Write;

use anyhow::Result;

use super::binutils::{self, Instruction};
use super::code::{CodeReport, FoundRoutine, InstructionCleaner, address_in_file};
use super::source_lines::SourceLineCache;
use super::values::CodeValues;
use crate::host::DropinHost;

/// Length in bytes from which a file name is cut at its beginning.
const MAX_FILE_NAME: usize = 58;

impl CodeReport<'_> {
    /// Prints the instructions of a routine.
    pub(super) fn disassemble(
        &self,
        host: &dyn DropinHost,
        found: &FoundRoutine<'_>,
        sources: &mut SourceLineCache,
        out: &mut dyn Write,
    ) -> Result<()> {
        let FoundRoutine {
            object, routine, ..
        } = found;
        let cleaner = InstructionCleaner::new()?;
        let instructions = binutils::instructions(&object.file, routine, object.bias)?;
        let values_of = |i: &Instruction| self.values.sum(i.begin, i.end);
        let sum = |instructions: &[Instruction]| {
            let mut sum = CodeValues::default();
            instructions.iter().for_each(|i| sum += values_of(i));
            sum
        };
        let total = sum(&instructions);
        writeln!(
            out,
            "ROUTINE ====================== {}\n{:>6} {:>6} {} (flat, cumulative) {:.1}% of total",
            routine.name,
            self.measure.show(total.flat),
            self.measure.show(total.cum),
            self.measure.unit(),
            share(total.cum, self.values.total),
        )?;
        let mut file = "";
        for run in instructions.chunk_by(|a, b| a.line == b.line) {
            let Some(first) = run.first() else {
                continue;
            };
            // Only the first instruction of a line decides whether the file is named.
            if first.file != file {
                file = &first.file;
                writeln!(out, "-------------------- {}", short_file_name(file))?;
            }
            match sources.line(file, first.line) {
                Ok(Some(text)) => {
                    let values = sum(run);
                    // Without the blanks before it, a blank line has no line end either.
                    write!(
                        out,
                        "{:>6} {:>6} {:>5}: {}",
                        self.show_or(values.flat, "."),
                        self.show_or(values.cum, "."),
                        first.line,
                        text.trim_start(),
                    )?;
                }
                Ok(None) => {}
                Err(error) => host.note(&format!("{file}: {error}")),
            }
            for instruction in run {
                let values = values_of(instruction);
                writeln!(
                    out,
                    "{:>6} {:>6}    {:>8}: {:>6}",
                    self.show_or(values.flat, "."),
                    self.show_or(values.cum, "."),
                    address_in_file(instruction.begin, object),
                    cleaner.clean(&instruction.text),
                )?;
            }
        }
        Ok(())
    }
}

/// Returns a value's share of a total in percent; 0 of an empty total.
pub(super) fn share(value: i128, total: i128) -> f64 {
    match total {
        0 => 0.0,
        total => value as f64 * 100.0 / total as f64,
    }
}

fn short_file_name(file: &str) -> String {
    let file = file.strip_prefix("./").unwrap_or(file);
    if file.len() < MAX_FILE_NAME {
        return file.to_string();
    }
    let cut = (file.len() + 3 - MAX_FILE_NAME..).find(|&at| file.is_char_boundary(at));
    format!("...{}", cut.and_then(|at| file.get(at..)).unwrap_or(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_of_files_are_cut() {
        let long = "/".to_string() + &"a".repeat(57);
        for (file, expected) in [
            ("./a.c".to_string(), "a.c".to_string()),
            ("b".repeat(57), "b".repeat(57)),
            (long, format!("...{}", "a".repeat(55))),
        ] {
            assert_eq!(short_file_name(&file), expected);
        }
    }

    #[test]
    fn shares() {
        assert_eq!(share(1, 0), 0.0);
        assert_eq!(share(-1, 4), -25.0);
    }
}
