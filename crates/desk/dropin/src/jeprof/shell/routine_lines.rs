//! The source lines of one routine, with their values.
//!
//! A routine's lines are not known exactly, so the scripts guess: they take the first file of the
//! instructions, and the lines from the first one to the largest one. They then follow the source
//! until it is less indented than the first line.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result, bail};
use regex::Regex;

use super::binutils::{self, Instruction, Routine};
use super::objects::MappedObject;
use super::source_lines::read_lines;
use super::values::{AddressValues, CodeValues};
use crate::jeprof::tool::PerlTool;

/// An instruction with the source line of the routine that it belongs to. If another function was
/// inlined there, its own source line is a different one.
#[derive(Debug)]
pub(super) struct PlacedInstruction {
    pub(super) own: Instruction,
    /// File of the routine's line.
    pub(super) file: String,
    /// Number of the routine's line.
    pub(super) line: i64,
    pub(super) values: CodeValues,
}

/// A routine's source lines.
#[derive(Debug)]
pub(super) struct RoutineLines {
    pub(super) file: String,
    pub(super) first: i64,
    /// The largest line of an instruction.
    pub(super) last_of_code: i64,
    /// The last line of the routine, as far as the indentation shows.
    pub(super) last: i64,
    pub(super) instructions: Vec<PlacedInstruction>,
    pub(super) total: CodeValues,
    /// The values of each line.
    pub(super) of_line: HashMap<i64, CodeValues>,
    /// The lines of the source file.
    pub(super) source: Vec<String>,
}

impl RoutineLines {
    /// Reads the instructions and the source of a routine.
    pub(super) fn new(
        object: &MappedObject,
        routine: &Routine,
        has_fini: bool,
        values: &AddressValues,
        tool: PerlTool,
    ) -> Result<Self> {
        let instructions = place_instructions(object, routine, has_fini, values, tool)?;
        let known = instructions.iter().find(|i| i.line >= 0);
        let Some(file) = known.map(|i| i.file.clone()) else {
            bail!("no filename found in {}", routine.name);
        };
        let in_file = || instructions.iter().filter(|i| i.file == file);
        let last_of_code = in_file().map(|i| i.line).fold(0, i64::max);
        let first = in_file().map(|i| i.line).next().unwrap_or(1);
        let source = read_lines(Path::new(&file)).with_context(|| file.clone())?;
        let last = last_line(&source, first, last_of_code);
        let mut lines = Self {
            file,
            first,
            last_of_code,
            last,
            instructions,
            total: CodeValues::default(),
            of_line: HashMap::new(),
            source,
        };
        lines.add_up();
        Ok(lines)
    }

    /// Whether an instruction belongs to the lines of the routine.
    pub(super) fn has(&self, instruction: &PlacedInstruction) -> bool {
        let range = self.first..=self.last;
        instruction.file == self.file && range.contains(&instruction.line)
    }

    /// Adds up the values of lines. The values of an instruction that belongs to no line of the
    /// routine are added to the next instruction that does.
    fn add_up(&mut self) {
        let mut pending = CodeValues::default();
        let mut of_line: HashMap<i64, CodeValues> = HashMap::new();
        for instruction in &self.instructions {
            pending += instruction.values;
            self.total += instruction.values;
            if self.has(instruction) {
                *of_line.entry(instruction.line).or_default() += std::mem::take(&mut pending);
            }
        }
        *of_line.entry(self.last).or_default() += pending;
        self.of_line = of_line;
    }

    /// Returns the lines to print, with their numbers: those of the routine, and five more on each
    /// side.
    pub(super) fn shown(&self) -> impl Iterator<Item = (i64, &str)> {
        let (begin, end) = (self.first - 5, self.last.max(self.last_of_code + 5));
        // The scripts remove the last character of each line, even if that is no line end.
        let text = |line: &'_ str| line.char_indices().next_back().map_or(0, |(end, _)| end);
        (1..)
            .zip(&self.source)
            .filter(move |(number, _)| (begin..=end).contains(number))
            .map(move |(number, line)| (number, &line[..text(line)]))
    }
}

fn place_instructions(
    object: &MappedObject,
    routine: &Routine,
    has_fini: bool,
    values: &AddressValues,
    tool: PerlTool,
) -> Result<Vec<PlacedInstruction>> {
    let instructions = binutils::instructions(&object.file, routine, object.bias)?;
    let in_file = |i: &Instruction| i.begin.wrapping_sub(object.bias);
    let addresses: Vec<u64> = instructions.iter().map(in_file).collect();
    let debug_file = match tool {
        PerlTool::Jeprof => None,
        PerlTool::GooglePprof => binutils::debug_file(&object.file),
    };
    let file = debug_file.unwrap_or_else(|| object.file.clone());
    let places = binutils::places(&file, &addresses, has_fini)?;
    let place = Regex::new(r"^(.*):(\d+)$")?;
    let mut placed = Vec::with_capacity(instructions.len());
    let mut places = places.into_iter();
    for own in instructions {
        let text = tool.clean_place(places.next().unwrap_or_default());
        let (file, line) = match place.captures(&text) {
            Some(found) => (found[1].to_string(), found[2].parse().unwrap_or(i64::MAX)),
            None => (own.file.clone(), own.line),
        };
        let values = values.sum(own.begin, own.end);
        placed.push(PlacedInstruction {
            own,
            file,
            line,
            values,
        });
    }
    Ok(placed)
}

/// Returns the last line of a routine: the line before the first one after `last_of_code` that is
/// less indented than the routine's first line. A routine that begins at the margin ends with its
/// code.
fn last_line(source: &[String], first: i64, last_of_code: i64) -> i64 {
    let mut last = last_of_code;
    let mut first_indentation = None;
    for (number, line) in (1..).zip(source) {
        let Some(indentation) = indentation(line) else {
            continue;
        };
        if number >= first && first_indentation.is_none() {
            first_indentation = Some(indentation);
            if indentation == 0 {
                break;
            }
        }
        if number >= last {
            if first_indentation.is_some_and(|first| indentation < first) {
                break;
            }
            last = number + 1;
        }
    }
    last
}

/// Returns the number of blanks at the beginning of a line, or `None` for a blank line.
fn indentation(line: &str) -> Option<usize> {
    let text = line.trim_start();
    (!text.is_empty()).then(|| line.len() - text.len())
}

/// The instructions of each line, as text that is put together in the order of addresses.
#[derive(Debug, Default)]
pub(super) struct LineTexts {
    of_line: BTreeMap<i64, String>,
    pending: String,
    last_line: i64,
}

impl LineTexts {
    pub(super) fn new() -> Self {
        Self {
            last_line: -1,
            ..Self::default()
        }
    }

    /// Adds text that belongs to the line that is ended next.
    pub(super) fn push(&mut self, text: &str) {
        self.pending.push_str(text);
    }

    /// Adds all pending text to a line. An empty line separates it from text that is not next to
    /// it.
    pub(super) fn end(&mut self, line: i64) {
        let text = self.of_line.entry(line).or_default();
        if line != self.last_line && !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&std::mem::take(&mut self.pending));
        self.last_line = line;
    }

    /// Returns the text of a line.
    pub(super) fn get(&self, line: i64) -> &str {
        self.of_line.get(&line).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(source: &str, first: i64, last_of_code: i64) -> i64 {
        let source: Vec<String> = source.split_inclusive('\n').map(str::to_string).collect();
        last_line(&source, first, last_of_code)
    }

    #[test]
    fn a_routine_ends_where_the_source_is_less_indented() {
        let method = "class A {\n  void f() {\n    g();\n\n    h();\n  }\n\n};\nint x;\n";
        for (first, last_of_code, expected) in [(2, 3, 7), (2, 6, 7), (3, 3, 6), (2, 9, 9)] {
            assert_eq!(last(method, first, last_of_code), expected, "{first}");
        }
        assert_eq!(last("int f()\n{\n  g();\n}\n", 1, 3), 3);
        // The source ends first.
        assert_eq!(last("  f() {\n    g();\n", 1, 1), 3);
        assert_eq!(last("", 1, 4), 4);
    }

    #[test]
    fn texts_of_lines_that_alternate() {
        let mut texts = LineTexts::new();
        for (text, line) in [("a\n", 1), ("b\n", 1), ("c\n", 2), ("d\n", 1)] {
            texts.push(text);
            texts.end(line);
        }
        assert_eq!(texts.get(1), "a\nb\n\nd\n");
        assert_eq!(texts.get(2), "c\n");
        assert_eq!(texts.get(3), "");
    }
}
