//! The report `list`: source with flat and cum beside each line.

use std::rc::Rc;

use heapprof_analysis::list::{FunctionListing, ListReport};
use serde_json::{Value, json};

use crate::advice::ReportAdvice;
use crate::error::ReportError;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::{UnitFormatter, percent};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// A function that returns the lines of a source file by its name in a profile, or the reason why
/// there are none.
pub type SourceText<'a> = &'a dyn Fn(&str) -> Result<Rc<[String]>, String>;

/// Number of lines that are shown before and after a line with values.
const CONTEXT_LINES: usize = 5;

/// Writes the report `list`.
pub fn list(
    list: &ListReport,
    source: SourceText<'_>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let measure = head::measure(&list.header, style)?;
    if style.format == ReportFormat::Json {
        let rows = list.rows.iter().map(|row| document(row, source));
        let mut document = json::head(&list.header);
        document.insert("rows".into(), rows.collect());
        return json::text(document);
    }
    if style.format == ReportFormat::Csv {
        let mut table = ReportTable::new(&[
            ("function", ColumnAlign::Left),
            ("file", ColumnAlign::Left),
            ("line", ColumnAlign::Right),
            ("flat", ColumnAlign::Right),
            ("cum", ColumnAlign::Right),
        ]);
        for row in &list.rows {
            for (line, flat, cum) in &row.lines {
                let numbers = [*line, *flat, *cum].map(|n| n.to_string());
                let mut cells = vec![row.function.clone(), row.file.clone()];
                cells.extend(numbers);
                table.row(cells);
            }
        }
        return table.render(style);
    }
    let mut lines = head::lines(&list.header, &measure, style);
    lines.extend(more_note(list, style));
    let mut body = String::new();
    for row in &list.rows {
        body.push_str(&function_head(row, &measure, list.header.total));
        let mut table = ReportTable::new(&[
            ("flat", ColumnAlign::Right),
            ("cum", ColumnAlign::Right),
            ("line", ColumnAlign::Right),
            ("source", ColumnAlign::Left),
        ]);
        let text = source(&row.file);
        if let Err(why) = &text {
            body.push_str(&format!("No source: {}\n", printable(why)));
        }
        for (line, values, source) in annotate_lines(row, text.as_deref().unwrap_or(&[])) {
            let [flat, cum] = value_cells(values, &measure);
            table.row(vec![flat, cum, number_cell(line), spaced(&source)]);
        }
        body.push_str(&fenced(&table, style)?);
    }
    Ok(with_head(&lines, &body, style))
}

/// Returns the cells of flat and cum; dots for a row without values.
pub(crate) fn value_cells(values: Option<(i64, i64)>, measure: &UnitFormatter) -> [String; 2] {
    match values {
        Some((flat, cum)) => [measure.show(flat), measure.show(cum)],
        None => [".".to_string(), ".".to_string()],
    }
}

/// Returns the cell of a line's number.
pub(crate) fn number_cell(line: i64) -> String {
    match line {
        0 => "?".to_string(),
        line => line.to_string(),
    }
}

/// Returns the text of a source line with blanks in place of tabs.
pub(crate) fn spaced(source: &str) -> String {
    source.replace('\t', "    ")
}

/// The text in place of a source line that the file does not have.
pub(crate) const BEYOND_THE_END: &str = "(beyond the end of the file)";

/// Returns the note about functions that match and are not listed.
pub(crate) fn more_note(list: &ListReport, style: &ReportStyle) -> Option<String> {
    let advice = || style.advise(ReportAdvice::AllRows);
    (list.more > 0).then(|| format!("not shown: {} more that match; {}", list.more, advice()))
}

/// Returns the lines above the table of a function.
pub(crate) fn function_head(row: &FunctionListing, measure: &UnitFormatter, total: i64) -> String {
    let file = match row.file.is_empty() {
        true => "(no file)",
        false => &row.file,
    };
    format!(
        "\n{} in {}\nflat {}, cum {} ({} of the total)\n",
        printable(&row.function),
        printable(file),
        measure.show(row.flat),
        measure.show(row.cum),
        percent(row.cum, total),
    )
}

/// Returns the table of a function. In Markdown, it is a block of code.
pub(crate) fn fenced(table: &ReportTable, style: &ReportStyle) -> Result<String, ReportError> {
    if style.format != ReportFormat::Markdown {
        return table.render(style);
    }
    let plain = ReportStyle {
        format: ReportFormat::Text,
        ..style.clone()
    };
    Ok(format!("\n```\n{}```\n", table.render(&plain)?))
}

/// The text of a line.
pub(crate) enum ListedSource<'a> {
    Line(&'a str),
    /// The file has fewer lines.
    Beyond,
    /// The file or the number of the line is not known.
    Unknown,
}

/// Returns the text of a line by its number.
pub(crate) fn source_line(text: &[String], line: i64) -> ListedSource<'_> {
    let at = usize::try_from(line).ok().and_then(|n| n.checked_sub(1));
    match at.and_then(|at| text.get(at)) {
        Some(line) => ListedSource::Line(line),
        None if text.is_empty() || line == 0 => ListedSource::Unknown,
        None => ListedSource::Beyond,
    }
}

/// A line's number, its flat and cum if it has values, and its text.
type AnnotatedLine = (i64, Option<(i64, i64)>, String);

/// Returns the lines with values, and some lines around them. Without source there are only the
/// lines with values.
fn annotate_lines(row: &FunctionListing, text: &[String]) -> Vec<AnnotatedLine> {
    let mut shown: Vec<AnnotatedLine> = Vec::new();
    let known = |line: i64| {
        usize::try_from(line)
            .ok()
            .filter(|n| (1..=text.len()).contains(n))
    };
    for &(line, flat, cum) in &row.lines {
        let Some(at) = known(line) else {
            let note = if text.is_empty() || line == 0 {
                ""
            } else {
                BEYOND_THE_END
            };
            shown.push((line, Some((flat, cum)), note.to_string()));
            continue;
        };
        let after = shown.last().and_then(|last| known(last.0)).unwrap_or(0);
        if let Some(last) = shown.last() {
            // These are lines after the last one with a value.
            let until = known(last.0).map_or(0, |n| (n + CONTEXT_LINES).min(at - 1));
            for n in after + 1..=until {
                shown.push((n as i64, None, text[n - 1].clone()));
            }
        }
        let after = shown.last().and_then(|last| known(last.0)).unwrap_or(0);
        for n in (after + 1).max(at.saturating_sub(CONTEXT_LINES)).max(1)..at {
            shown.push((n as i64, None, text[n - 1].clone()));
        }
        shown.push((line, Some((flat, cum)), text[at - 1].clone()));
    }
    if let Some(at) = shown.last().and_then(|last| known(last.0)) {
        for n in at + 1..=(at + CONTEXT_LINES).min(text.len()) {
            shown.push((n as i64, None, text[n - 1].clone()));
        }
    }
    shown
}

fn document(row: &FunctionListing, source: SourceText<'_>) -> Value {
    let text = source(&row.file);
    let lines: Vec<Value> = row
        .lines
        .iter()
        .map(|&(line, flat, cum)| {
            let source = match source_line(text.as_deref().unwrap_or(&[]), line) {
                ListedSource::Line(text) => Some(text),
                ListedSource::Beyond | ListedSource::Unknown => None,
            };
            json!({"line": line, "flat": flat, "cum": cum, "source": source})
        })
        .collect();
    let mut document = json!({
        "function": row.function,
        "file": row.file,
        "flat": row.flat,
        "cum": row.cum,
        "lines": lines,
    });
    if let Err(why) = text {
        document["no_source"] = json!(why);
    }
    document
}
