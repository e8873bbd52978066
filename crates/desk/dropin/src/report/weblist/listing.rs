//! The rows of a listing: functions, their source lines, and the instructions of each line.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io;

use super::cut::{ListedFunction, functions};
use super::instructions::{InlinedPlace, InstructionMap, ListedFile, PlacedInstruction};
use super::samples::SampledAddresses;
use super::text::{characters, indentation, padded};
use crate::error::DropinError;
use crate::graph::base;
use crate::report::list::SourceReader;
use crate::report::measurement::percentage;
use crate::report::options::{PprofReportOptions, PprofValueFormatter};

/// Number of columns by which an inlined call is indented below its caller.
const INDENT: usize = 4;

/// A row of a listing.
#[derive(Clone, Debug)]
pub enum ListingRow {
    /// The beginning of a function.
    Function(ListingFunction),
    /// A line of the function.
    Line(ListingLine),
    /// The end of the function.
    End,
}

/// A function of a listing.
#[derive(Clone, Debug)]
pub struct ListingFunction {
    /// The name of the function.
    pub name: String,
    /// The source file.
    pub file: String,
    /// The value of its own lines, with a unit.
    pub flat: String,
    /// The value with callees, with a unit.
    pub cum: String,
    /// The share of cum in the total.
    pub percent: String,
}

/// A source line of a listing.
#[derive(Clone, Debug)]
pub struct ListingLine {
    /// The number of the line; 0 if it is unknown.
    pub number: i64,
    /// The value of the line's own instructions, with a unit; a dot for 0.
    pub flat: String,
    /// The value with callees, with a unit; a dot for 0.
    pub cum: String,
    /// The text of the line.
    pub text: Vec<u8>,
    /// What is known about the code of the line.
    pub code: LineCode,
    /// The instructions of the line.
    pub instructions: Vec<InstructionRow>,
}

/// What is known about the code of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineCode {
    /// The line has no code.
    Nothing,
    /// The line has code, but its instructions are not known.
    Unknown,
    /// The instructions are known.
    Known,
}

/// A row below a source line.
#[derive(Clone, Debug)]
pub enum InstructionRow {
    /// The next instruction does not follow the one before.
    Gap,
    /// A call of an inlined function.
    InlinedCall {
        /// The source line of the call, indented, with blanks up to the place.
        text: String,
        /// The file and the line.
        place: String,
    },
    /// An instruction.
    Instruction {
        /// The value of the instruction itself, with a unit; a dot for 0.
        flat: String,
        /// The value with callees, with a unit; a dot for 0.
        cum: String,
        /// The address in the object file.
        address: u64,
        /// The text, indented, with blanks up to the place.
        text: String,
        /// The base name of the file of the innermost function; empty if it is unknown.
        file: String,
        /// The line in this file.
        line: i64,
    },
}

/// The order of a listing's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingOrder {
    /// All files by their names, as the command line shows them.
    Name,
    /// This number of files, the largest flat first, as a page shows them.
    Largest(usize),
}

/// The sources of a listing.
pub(super) struct SourceListing<'a> {
    pub(super) options: &'a PprofReportOptions,
    pub(super) samples: &'a SampledAddresses<'a>,
    pub(super) map: &'a InstructionMap,
    pub(super) read: SourceReader<'a>,
}

impl SourceListing<'_> {
    /// Gives each row to `show`.
    pub(super) fn visit(
        &self,
        order: ListingOrder,
        show: &mut dyn FnMut(ListingRow) -> io::Result<()>,
    ) -> Result<(), DropinError> {
        let mut files: Vec<(&str, &ListedFile)> = self
            .map
            .files
            .iter()
            .map(|(name, file)| (name.as_str(), file))
            .collect();
        if let ListingOrder::Largest(count) = order {
            files.sort_by_cached_key(|(_, file)| Reverse(self.flat(file)));
            files.truncate(count);
        }
        for (name, file) in files {
            for function in functions(file, self.map, self.samples) {
                if function.cum != 0 {
                    self.visit_function(name, file, &function, show)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the flat of a file. An instruction below several lines counts once.
    fn flat(&self, file: &ListedFile) -> i64 {
        let placed = file.lines.values().flatten();
        let addresses: HashSet<u64> = placed.map(|placed| placed.address).collect();
        let instructions = addresses.into_iter().map(|at| self.map.instruction(at));
        instructions
            .flatten()
            .fold(0i64, |sum, one| sum.wrapping_add(one.flat))
    }

    fn visit_function(
        &self,
        name: &str,
        file: &ListedFile,
        function: &ListedFunction<'_>,
        show: &mut dyn FnMut(ListingRow) -> io::Result<()>,
    ) -> io::Result<()> {
        let values = self.options.values();
        show(ListingRow::Function(ListingFunction {
            name: function.name.to_string(),
            file: name.to_string(),
            flat: values.show(function.flat),
            cum: values.show(function.cum),
            percent: percentage(function.cum, self.options.total),
        }))?;
        let source = (self.read)(name);
        for number in function.begin..function.end {
            let instructions = file.lines.get(&number).map_or(&[][..], Vec::as_slice);
            let lines = source.as_deref().unwrap_or_default();
            let line = match source_line(lines, number) {
                Some(line) => line,
                None if instructions.is_empty() => continue,
                None if number == 0 => b"<instructions with unknown line numbers>",
                None => b"???",
            };
            show(ListingRow::Line(self.line(
                number,
                line,
                instructions,
                &values,
            )))?;
        }
        show(ListingRow::End)
    }

    /// Returns a source line with its instructions.
    fn line(
        &self,
        number: i64,
        line: &[u8],
        instructions: &[PlacedInstruction],
        values: &PprofValueFormatter,
    ) -> ListingLine {
        let (mut flat, mut cum) = (0i64, 0i64);
        let mut has_code = false;
        for placed in instructions {
            has_code |= !placed.inlined.is_empty();
            if let Some(instruction) = self.map.instruction(placed.address) {
                flat = flat.wrapping_add(instruction.flat);
                cum = cum.wrapping_add(instruction.cum);
                has_code |= !instruction.text.is_empty();
            }
        }
        ListingLine {
            number,
            flat: value_or_dot(flat, values),
            cum: value_or_dot(cum, values),
            text: line.to_vec(),
            code: match (instructions.is_empty(), has_code) {
                (true, _) => LineCode::Nothing,
                (false, true) => LineCode::Known,
                (false, false) => LineCode::Unknown,
            },
            instructions: match has_code {
                true => self.instructions(indentation(line), instructions, values),
                false => Vec::new(),
            },
        }
    }

    /// Returns the instructions of a line, each after the inlined calls that lead to it.
    fn instructions(
        &self,
        indent: usize,
        instructions: &[PlacedInstruction],
        values: &PprofValueFormatter,
    ) -> Vec<InstructionRow> {
        let mut rows = Vec::new();
        let mut expected = None;
        let mut above: &[InlinedPlace] = &[];
        for placed in instructions {
            let Some(instruction) = self.map.instruction(placed.address) else {
                continue;
            };
            if expected.is_some_and(|expected| expected != placed.address) {
                rows.push(InstructionRow::Gap);
            }
            expected = Some(placed.address.wrapping_add(instruction.length));
            self.add_inlined_calls(indent, &placed.inlined, above, &mut rows);
            above = &placed.inlined;
            if instruction.text.is_empty() {
                continue;
            }
            let depth = indent + INDENT + INDENT * placed.inlined.len();
            let file = self.map.text(instruction.file);
            rows.push(InstructionRow::Instruction {
                flat: value_or_dot(instruction.flat, values),
                cum: value_or_dot(instruction.cum, values),
                address: instruction.object_address,
                text: padded(&(" ".repeat(depth) + &instruction.text)),
                file: match file {
                    "" => String::new(),
                    file => base(file).to_string(),
                },
                line: instruction.line,
            });
        }
        rows
    }

    /// Adds the inlined calls of an instruction that the instruction above does not share.
    fn add_inlined_calls(
        &self,
        indent: usize,
        inlined: &[InlinedPlace],
        above: &[InlinedPlace],
        rows: &mut Vec<InstructionRow>,
    ) {
        let shared = inlined
            .iter()
            .zip(above)
            .take_while(|(a, b)| a == b)
            .count();
        for (depth, place) in inlined.iter().enumerate().skip(shared) {
            let file = self.map.text(place.file);
            let source = (self.read)(file);
            let lines = source.as_deref().unwrap_or_default();
            let line = characters(source_line(lines, place.line).unwrap_or_default());
            let depth = indent + INDENT + INDENT * depth;
            rows.push(InstructionRow::InlinedCall {
                text: padded(&(" ".repeat(depth) + line.trim())),
                place: format!("{}:{}", base(file), place.line),
            });
        }
    }
}

/// Returns a line of a source file, whose lines are numbered from 1.
fn source_line(lines: &[Vec<u8>], number: i64) -> Option<&[u8]> {
    let at = usize::try_from(number).ok()?.checked_sub(1)?;
    lines.get(at).map(Vec::as_slice)
}

fn value_or_dot(value: i64, values: &PprofValueFormatter) -> String {
    match value {
        0 => ".".to_string(),
        value => values.show(value),
    }
}
