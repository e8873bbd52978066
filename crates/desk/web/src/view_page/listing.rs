//! Writes a listing of source lines with their instructions. A click on a line shows its
//! instructions, without a script.

use super::escape_lines;
use crate::page::escape_html;

/// A function of a listing.
#[derive(Clone, Debug)]
pub struct ViewFunction {
    /// The name of the function.
    pub name: String,
    /// The source file.
    pub file: String,
    /// The line with its sums.
    pub sums: String,
    /// The source lines.
    pub lines: Vec<ViewLine>,
}

/// A source line of a listing.
#[derive(Clone, Debug)]
pub struct ViewLine {
    /// The number, the values and the text.
    pub text: String,
    /// Whether the line has code.
    pub has_code: bool,
    /// The instructions below the line.
    pub instructions: Vec<ViewInstruction>,
}

/// A row below a source line.
#[derive(Clone, Debug)]
pub struct ViewInstruction {
    /// The values, the address and the instruction, or the source line of an inlined call.
    pub text: String,
    /// The file and the line; empty if they are unknown.
    pub place: String,
    /// Whether the row is an inlined call.
    pub is_call: bool,
}

/// Appends the functions of a listing.
pub(super) fn push_listing(html: &mut String, functions: &[ViewFunction]) {
    if functions.is_empty() {
        *html += "<p class=\"filename\">No line of these functions has a value.</p>\n";
    }
    for function in functions {
        *html += &format!(
            "<section class=\"listing\"><h2>{}</h2><p class=\"filename\">{}</p>\n<div \
             class=\"code\"><div>{}</div>\n",
            escape_html(&function.name),
            escape_html(&function.file),
            escape_html(&function.sums),
        );
        for line in &function.lines {
            push_line(html, line);
        }
        *html += "</div></section>\n";
    }
}

fn push_line(html: &mut String, line: &ViewLine) {
    let text = escape_lines(&line.text);
    if line.instructions.is_empty() {
        let class = if line.has_code { "" } else { " class=\"nop\"" };
        *html += &format!("<div{class}>{text}</div>\n");
        return;
    }
    *html += &format!("<details><summary>{text}</summary>\n");
    for row in &line.instructions {
        let class = if row.is_call { "call" } else { "asm" };
        let (text, place) = (escape_lines(&row.text), escape_html(&row.place));
        *html += &format!("<div class=\"{class}\">{text} <span>{place}</span></div>\n");
    }
    *html += "</details>\n";
}
