//! Writes the page of `-weblist`.
//!
//! The text around the listing is in `page.html`. It is pprof's, so that the page has pprof's
//! bytes: Copyright 2014, 2017 Google Inc., licensed under the Apache License, Version 2.0
//! (LICENSE-APACHE in this repository), from google/pprof, internal/driver/html/source.html and
//! internal/report/source_html.go. Only the parts for a page alone were taken, and its variable
//! parts were replaced by the two marks below.

use super::listing::{InstructionRow, LineCode, ListingFunction, ListingLine, ListingRow};
use super::text::{escape, escape_before};

/// The text around the listing.
const PAGE: &str = include_str!("page.html");
/// The mark for the title in [`PAGE`].
const TITLE_MARK: &str = "{{title}}";
/// The mark for the legend and the listing in [`PAGE`].
const LISTING_MARK: &str = "{{listing}}";

/// Returns the beginning of the page, up to the first function. `legend` has the lines that
/// describe the profile, and `total` is the total with its unit.
pub(super) fn page_start(legend: &[String], total: &str) -> Vec<u8> {
    let (start, rest) = PAGE.split_once(TITLE_MARK).unwrap_or((PAGE, ""));
    let (middle, _) = rest.split_once(LISTING_MARK).unwrap_or((rest, ""));
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
    escape(total.as_bytes(), &mut text);
    text.extend_from_slice(b"</div>");
    text
}

/// Returns the end of the page.
pub(super) fn page_end() -> &'static [u8] {
    let end = PAGE.split_once(LISTING_MARK).map_or("", |(_, end)| end);
    end.as_bytes()
}

/// Appends a row of the listing.
pub(super) fn push_row(row: &ListingRow, text: &mut Vec<u8>) {
    match row {
        ListingRow::Function(function) => push_function(function, text),
        ListingRow::Line(line) => push_line(line, text),
        ListingRow::End => text.extend_from_slice(b"\n</pre>\n"),
    }
}

fn push_function(function: &ListingFunction, text: &mut Vec<u8>) {
    text.extend_from_slice(b"<h2>");
    escape(function.name.as_bytes(), text);
    text.extend_from_slice(b"</h2><p class=\"filename\">");
    escape(function.file.as_bytes(), text);
    text.extend_from_slice(b"</p>\n<pre onClick=\"pprof_toggle_asm(event)\">\n");
    let ListingFunction {
        flat, cum, percent, ..
    } = function;
    let sums = format!("  Total:  {flat:>10} {cum:>10} (flat, cum) {percent}");
    escape(sums.as_bytes(), text);
}

fn push_line(line: &ListingLine, text: &mut Vec<u8>) {
    let class = match line.code {
        LineCode::Nothing => "nop",
        LineCode::Known => "livesrc",
        LineCode::Unknown => "deadsrc",
    };
    let ListingLine {
        number, flat, cum, ..
    } = line;
    let start = format!("\n<span class=line> {number:>6}</span> <span class={class}>");
    text.extend_from_slice(start.as_bytes());
    let columns = format!("  {flat:>10} {cum:>10} {:>8}  ", "");
    escape(columns.as_bytes(), text);
    escape(&line.text, text);
    text.extend_from_slice(b" </span>");
    if line.code == LineCode::Known {
        text.extend_from_slice(b"<span class=asm>");
        for row in &line.instructions {
            push_instruction(row, text);
        }
        text.extend_from_slice(b"</span>");
    }
}

fn push_instruction(row: &InstructionRow, text: &mut Vec<u8>) {
    match row {
        InstructionRow::Gap => {
            text.extend_from_slice(format!(" {:8} {:>28}\n", "", "⋮").as_bytes());
        }
        InstructionRow::InlinedCall { text: call, place } => {
            let start = format!(" {:8} {:10} {:10} {:8}  ", "", "", "", "");
            text.extend_from_slice(start.as_bytes());
            text.extend_from_slice(b"<span class=inlinesrc>");
            escape(call.as_bytes(), text);
            text.extend_from_slice(b"</span> <span class=unimportant>");
            escape(place.as_bytes(), text);
            text.extend_from_slice(b"</span>\n");
        }
        InstructionRow::Instruction {
            flat,
            cum,
            address,
            text: code,
            file,
            line,
        } => {
            let row = format!(" {:8} {flat:>10} {cum:>10} {address:>8x}: {code} ", "");
            escape(row.as_bytes(), text);
            text.extend_from_slice(b"<span class=unimportant>");
            if !file.is_empty() {
                let place = format!("{}:{line}", escape_before(file));
                escape(place.as_bytes(), text);
            }
            text.extend_from_slice(b"</span>\n");
        }
    }
}
