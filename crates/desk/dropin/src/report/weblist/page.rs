//! Writes the page of `-weblist`.
//!
//! The text around the listing is in `page.html`. It is pprof's, so that the page has pprof's
//! bytes: Copyright 2014, 2017 Google Inc., licensed under the Apache License, Version 2.0
//! (LICENSE-APACHE in this repository), from google/pprof, internal/driver/html/source.html and
//! internal/report/source_html.go. Only the parts for a page alone were taken, and its variable
//! parts were replaced by the two marks below.

use std::io::Write;

use heapprof_profile::Profile;

use super::cut::{ListedFunction, functions};
use super::instructions::{InlinedPlace, InstructionMap, ListedFile, PlacedInstruction};
use super::samples::SampledAddresses;
use super::text::{characters, escape, escape_before, indentation, padded};
use crate::error::DropinError;
use crate::graph::base;
use crate::report::header::profile_labels;
use crate::report::list::SourceReader;
use crate::report::measurement::percentage;
use crate::report::options::{PprofReportOptions, PprofValueFormatter};

/// The text around the listing.
const PAGE: &str = include_str!("page.html");
/// The mark for the title in [`PAGE`].
const TITLE_MARK: &str = "{{title}}";
/// The mark for the legend and the listing in [`PAGE`].
const LISTING_MARK: &str = "{{listing}}";

/// Number of columns by which an inlined call is indented below its caller.
const INDENT: usize = 4;

/// Everything that the page shows.
pub(super) struct ListingPage<'a> {
    pub(super) profile: &'a Profile,
    pub(super) options: &'a PprofReportOptions,
    pub(super) samples: &'a SampledAddresses<'a>,
    pub(super) map: &'a InstructionMap,
    pub(super) read: SourceReader<'a>,
}

impl ListingPage<'_> {
    /// Writes the whole page.
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<(), DropinError> {
        let values = self.options.values();
        let legend = profile_labels(self.profile, self.options, &values);
        let (start, rest) = PAGE.split_once(TITLE_MARK).unwrap_or((PAGE, ""));
        let (middle, end) = rest.split_once(LISTING_MARK).unwrap_or((rest, ""));
        let mut text = start.as_bytes().to_vec();
        let named = |key: &str| {
            let found = legend.iter().find_map(|label| label.strip_prefix(key));
            found.unwrap_or("unknown")
        };
        let title = format!("{} {}", named("File: "), named("Type: "));
        escape(title.as_bytes(), &mut text);
        text.extend_from_slice(middle.as_bytes());
        text.extend_from_slice(b"<div class=\"legend\">");
        for (at, label) in legend.iter().enumerate() {
            if at > 0 {
                text.extend_from_slice(b"<br>\n");
            }
            escape(label.as_bytes(), &mut text);
        }
        text.extend_from_slice(b"<br>Total: ");
        escape(values.show(self.options.total).as_bytes(), &mut text);
        text.extend_from_slice(b"</div>");
        out.write_all(&text)?;
        for (name, file) in &self.map.files {
            for function in functions(file, self.map, self.samples) {
                if function.cum != 0 {
                    self.write_function(name, file, &function, &values, out)?;
                }
            }
        }
        Ok(out.write_all(end.as_bytes())?)
    }

    fn write_function(
        &self,
        name: &str,
        file: &ListedFile,
        function: &ListedFunction<'_>,
        values: &PprofValueFormatter,
        out: &mut dyn Write,
    ) -> Result<(), DropinError> {
        let mut text = b"<h2>".to_vec();
        escape(function.name.as_bytes(), &mut text);
        text.extend_from_slice(b"</h2><p class=\"filename\">");
        escape(name.as_bytes(), &mut text);
        text.extend_from_slice(b"</p>\n<pre onClick=\"pprof_toggle_asm(event)\">\n");
        let sums = format!(
            "  Total:  {:>10} {:>10} (flat, cum) {}",
            values.show(function.flat),
            values.show(function.cum),
            percentage(function.cum, self.options.total)
        );
        escape(sums.as_bytes(), &mut text);
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
            self.line(number, line, instructions, values, &mut text);
            out.write_all(&text)?;
            text.clear();
        }
        text.extend_from_slice(b"\n</pre>\n");
        Ok(out.write_all(&text)?)
    }

    /// Appends a source line and its instructions.
    fn line(
        &self,
        number: i64,
        line: &[u8],
        instructions: &[PlacedInstruction],
        values: &PprofValueFormatter,
        text: &mut Vec<u8>,
    ) {
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
        let class = match (instructions.is_empty(), has_code) {
            (true, _) => "nop",
            (false, true) => "livesrc",
            (false, false) => "deadsrc",
        };
        let start = format!("\n<span class=line> {number:>6}</span> <span class={class}>");
        text.extend_from_slice(start.as_bytes());
        let (flat, cum) = (value_or_dot(flat, values), value_or_dot(cum, values));
        let columns = format!("  {flat:>10} {cum:>10} {:>8}  ", "");
        escape(columns.as_bytes(), text);
        escape(line, text);
        text.extend_from_slice(b" </span>");
        if has_code {
            text.extend_from_slice(b"<span class=asm>");
            self.instructions(indentation(line), instructions, values, text);
            text.extend_from_slice(b"</span>");
        }
    }

    /// Appends the instructions of a line, each after the inlined calls that lead to it.
    fn instructions(
        &self,
        indent: usize,
        instructions: &[PlacedInstruction],
        values: &PprofValueFormatter,
        text: &mut Vec<u8>,
    ) {
        let mut expected = None;
        let mut above: &[InlinedPlace] = &[];
        for placed in instructions {
            let Some(instruction) = self.map.instruction(placed.address) else {
                continue;
            };
            if expected.is_some_and(|expected| expected != placed.address) {
                text.extend_from_slice(format!(" {:8} {:>28}\n", "", "⋮").as_bytes());
            }
            expected = Some(placed.address.wrapping_add(instruction.length));
            self.inlined_calls(indent, &placed.inlined, above, text);
            above = &placed.inlined;
            if instruction.text.is_empty() {
                continue;
            }
            let depth = indent + INDENT + INDENT * placed.inlined.len();
            let code = padded(&(" ".repeat(depth) + &instruction.text));
            let (flat, cum) = (instruction.flat, instruction.cum);
            let (flat, cum) = (value_or_dot(flat, values), value_or_dot(cum, values));
            let address = instruction.object_address;
            let row = format!(" {:8} {flat:>10} {cum:>10} {address:>8x}: {code} ", "");
            escape(row.as_bytes(), text);
            text.extend_from_slice(b"<span class=unimportant>");
            let file = self.map.text(instruction.file);
            if !file.is_empty() {
                let place = format!("{}:{}", escape_before(base(file)), instruction.line);
                escape(place.as_bytes(), text);
            }
            text.extend_from_slice(b"</span>\n");
        }
    }

    /// Appends the inlined calls of an instruction that the instruction above does not share.
    fn inlined_calls(
        &self,
        indent: usize,
        inlined: &[InlinedPlace],
        above: &[InlinedPlace],
        text: &mut Vec<u8>,
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
            let code = padded(&(" ".repeat(depth) + line.trim()));
            let start = format!(" {:8} {:10} {:10} {:8}  ", "", "", "", "");
            text.extend_from_slice(start.as_bytes());
            text.extend_from_slice(b"<span class=inlinesrc>");
            escape(code.as_bytes(), text);
            text.extend_from_slice(b"</span> <span class=unimportant>");
            escape(format!("{}:{}", base(file), place.line).as_bytes(), text);
            text.extend_from_slice(b"</span>\n");
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
