//! The page of the command `weblist`: source lines of routines, with their instructions.
//!
//! The page has the scripts' classes. Its style and its script are our own.

use std::io::{self, Write};

use super::code::{CodeReport, InstructionCleaner, address_in_file, clean_file_name};
use super::objects::MappedObject;
use super::routine_lines::{LineTexts, RoutineLines};

/// The beginning of the page.
pub(super) const PAGE_BEGIN: &str = r#"<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<title>Listing</title>
<style type="text/css">
body { font-family: sans-serif; }
h1 { font-size: 1.4em; margin: 1em 0 0; }
.legend { font-size: 1.2em; }
.line, .nop, .unimportant { color: #999; }
.livesrc { color: #00c; cursor: pointer; }
.deadsrc { cursor: pointer; }
.livesrc:hover, .deadsrc:hover { background-color: #eee; }
.asm { color: #060; display: none; }
.disasmloc { color: #000; }
</style>
<script type="text/javascript">
function toggle_asm(event) {
  var code = event.target.nextElementSibling;
  if (code && code.className == "asm") {
    code.style.display = code.style.display == "block" ? "none" : "block";
  }
}
</script>
</head>
<body>
"#;

/// The end of the page.
pub(super) const PAGE_END: &str = "</body>\n</html>\n";

/// Minimum length of an instruction with its values, in bytes, before its source line.
const MIN_INSTRUCTION_LENGTH: usize = 80;

impl CodeReport<'_> {
    /// Writes the legend of the page.
    pub(super) fn write_legend(
        &self,
        program: &str,
        total: i128,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        writeln!(
            out,
            "<div class=\"legend\">{}<br>Total: {} {}</div>",
            escape(program),
            self.measure.show(total),
            self.measure.unit()
        )
    }

    /// Writes the part of the page for a routine. `name` is its shortened name.
    pub(super) fn write_section(
        &self,
        name: &str,
        object: &MappedObject,
        lines: &RoutineLines,
        cleaner: &InstructionCleaner,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let texts = self.instruction_texts(object, lines, cleaner);
        writeln!(
            out,
            "<h1>{}</h1>{}\n<pre onClick=\"toggle_asm(event)\">\n\
             Total:{:>6} {:>6} (flat / cumulative {})",
            escape(name),
            escape(clean_file_name(&lines.file)),
            self.measure.show(lines.total.flat),
            self.measure.show(lines.total.cum),
            self.measure.unit(),
        )?;
        for (number, text) in lines.shown() {
            let code = match texts.get(number) {
                "" => String::new(),
                code => format!("<span class=\"asm\">{code}</span>"),
            };
            let values = lines.of_line.get(&number).copied().unwrap_or_default();
            let class = match (values.flat + values.cum > 0, code.as_str()) {
                (true, _) => "livesrc",
                (false, "") => "nop",
                (false, _) => "deadsrc",
            };
            writeln!(
                out,
                "<span class=\"line\">{number:>5}</span> \
                 <span class=\"{class}\">{:>6} {:>6} {}</span>{code}",
                self.show_or(values.flat, ""),
                self.show_or(values.cum, ""),
                escape(text),
            )?;
        }
        writeln!(out, "</pre>")
    }

    /// Returns the instructions of each line.
    fn instruction_texts(
        &self,
        object: &MappedObject,
        lines: &RoutineLines,
        cleaner: &InstructionCleaner,
    ) -> LineTexts {
        let mut texts = LineTexts::new();
        let (mut last_file, mut last_line) = ("", -1);
        for instruction in &lines.instructions {
            let own = &instruction.own;
            let mut text = format!(
                "      {:>6} {:>6} \t\t{:>8}: {} ",
                self.show_or(instruction.values.flat, ""),
                self.show_or(instruction.values.cum, ""),
                address_in_file(own.begin, object),
                cleaner.clean(&own.text),
            );
            let missing = MIN_INSTRUCTION_LENGTH.saturating_sub(text.len());
            text.push_str(&" ".repeat(missing));
            let (file, line) = (escape(clean_file_name(&own.file)), own.line);
            let place = if own.file != last_file {
                format!("<span class=disasmloc>{file}:{line}</span>")
            } else if line != last_line {
                format!("<span class=unimportant>{file}</span><span class=disasmloc>:{line}</span>")
            } else {
                format!("<span class=unimportant>{file}:{line}</span>")
            };
            (last_file, last_line) = (&own.file, line);
            texts.push(&format!("{}{place}\n", escape(&text)));
            if lines.has(instruction) {
                texts.end(instruction.line);
            }
        }
        texts.end(lines.last);
        texts
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
