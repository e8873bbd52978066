//! The report `list` with instructions: each line of a function, and below it the instructions that
//! belong to it, with flat and cum beside both.

use std::collections::BTreeMap;
use std::io::Write;

use heapprof_analysis::list::{FunctionListing, ListReport};
use heapprof_assembly::{
    CodeInstruction, CodePiece, FunctionAssembly, ListedInstruction, MissingCode, ProfileAssembly,
    SourceFrame,
};
use heapprof_text::shorten_one;
use serde_json::{Map, Value, json};

use crate::error::ReportError;
use crate::head;
use crate::json;
use crate::list::{
    BEYOND_THE_END, ListedSource, SourceText, function_head, more_note, number_cell, source_line,
    spaced, value_cells,
};
use crate::measure::UnitFormatter;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// The instructions of the functions in a report `list`.
pub struct ListAssembly<'a> {
    assembly: &'a ProfileAssembly,
    advice: &'static str,
}

impl<'a> ListAssembly<'a> {
    /// Makes the instructions to show, with advice about a function whose file is not found.
    #[must_use]
    pub fn new(assembly: &'a ProfileAssembly, advice: &'static str) -> Self {
        Self { assembly, advice }
    }

    /// Calls `each` with what the rows of CSV can't say: which functions have code that is cut, may
    /// be that of another file, or is missing, and why. Other formats say it in the report.
    pub fn each_note(&self, list: &ListReport, style: &ReportStyle, each: impl Fn(&str)) {
        let functions = list.rows.iter().zip(&self.assembly.functions);
        for (row, function) in functions.filter(|_| style.format == ReportFormat::Csv) {
            let note = |what: &str| each(&printable(&format!("{}: {what}", row.function)));
            let doubtful = |piece: &&CodePiece| piece.is_cut || !piece.has_build_id;
            for piece in pieces(function, self.assembly).filter(doubtful) {
                note(&piece_note(piece));
            }
            for why in self.reasons(function) {
                note(&why);
            }
        }
    }

    /// Returns why instructions of a function are missing, with advice.
    fn reasons(&self, function: &FunctionAssembly) -> Vec<String> {
        let reason = |why: &MissingCode| {
            let advice = if why.wants_file() { self.advice } else { "" };
            format!("{why}{advice}")
        };
        function.missing.iter().map(reason).collect()
    }
}

/// Writes the report `list` with the instructions of its functions.
pub fn list_assembly(
    list: &ListReport,
    code: &ListAssembly<'_>,
    source: SourceText<'_>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let measure = head::measure(&list.header, style)?;
    let functions = list.rows.iter().zip(&code.assembly.functions);
    match style.format {
        ReportFormat::Json => {
            let mut text = Vec::new();
            write_list_assembly(list, code, source, &mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        ReportFormat::Csv => {
            let mut table = ReportTable::new(&[
                ("function", ColumnAlign::Left),
                ("file", ColumnAlign::Left),
                ("line", ColumnAlign::Right),
                ("flat", ColumnAlign::Right),
                ("cum", ColumnAlign::Right),
                ("address", ColumnAlign::Right),
                ("instruction", ColumnAlign::Left),
                ("binary", ColumnAlign::Left),
            ]);
            for (row, function) in functions {
                for (line, (values, instructions)) in lines(row, function) {
                    let of_line = |rest| csv_row(row, line, rest);
                    if let (Some(values), true) = (values, instructions.is_empty()) {
                        table.row(of_line((values, Default::default())));
                    }
                    for listed in instructions {
                        let values = listed.values.unwrap_or_default();
                        table.row(of_line((values, csv_instruction(listed, code.assembly))));
                    }
                }
            }
            table.render(style)
        }
        ReportFormat::Text | ReportFormat::Markdown => {
            let mut lines = head::lines(&list.header, &measure, style);
            lines.extend(more_note(list, style));
            let mut body = String::new();
            for (row, function) in functions {
                body.push_str(&function_head(row, &measure, list.header.total));
                body.push_str(&code_notes(function, code));
                let text = source(&row.file);
                if let Err(why) = &text {
                    body.push_str(&format!("No source: {}\n", printable(why)));
                }
                let text = text.as_deref().unwrap_or(&[]);
                let table = table(row, function, code.assembly, text, &measure);
                body.push_str(&crate::list::fenced(&table, style)?);
            }
            Ok(head::with_head(&lines, &body, style))
        }
    }
}

/// Writes the report `list` with instructions as JSON, one function after the other, because it may
/// be much longer than the profile.
pub fn write_list_assembly(
    list: &ListReport,
    code: &ListAssembly<'_>,
    source: SourceText<'_>,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    json::write_each(&json::head(&list.header), &Map::new(), out, |rows| {
        let mut functions = list.rows.iter().zip(&code.assembly.functions);
        functions.try_for_each(|(row, function)| rows.row(&document(row, function, code, source)))
    })
}

/// The flat and cum of a line, if it has samples, and its instructions.
type LineWithCode<'a> = (Option<(i64, i64)>, Vec<&'a ListedInstruction>);

/// Returns the lines of a function by their numbers.
fn lines<'a>(
    row: &FunctionListing,
    function: &'a FunctionAssembly,
) -> BTreeMap<i64, LineWithCode<'a>> {
    let mut lines: BTreeMap<i64, LineWithCode<'a>> = BTreeMap::new();
    for &(line, flat, cum) in &row.lines {
        lines.entry(line).or_default().0 = Some((flat, cum));
    }
    for listed in &function.instructions {
        lines.entry(listed.line).or_default().1.push(listed);
    }
    lines
}

fn table(
    row: &FunctionListing,
    function: &FunctionAssembly,
    assembly: &ProfileAssembly,
    source: &[String],
    measure: &UnitFormatter,
) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("flat", ColumnAlign::Right),
        ("cum", ColumnAlign::Right),
        ("line", ColumnAlign::Right),
        ("address", ColumnAlign::Right),
        ("source and instructions", ColumnAlign::Left),
    ]);
    for (line, (values, instructions)) in lines(row, function) {
        let [flat, cum] = value_cells(values, measure);
        let text = match source_line(source, line) {
            ListedSource::Line(text) => spaced(text),
            ListedSource::Beyond => BEYOND_THE_END.to_string(),
            ListedSource::Unknown => String::new(),
        };
        table.row(vec![flat, cum, number_cell(line), String::new(), text]);
        let mut above = String::new();
        for listed in instructions {
            let Some((_, instruction)) = find(assembly, listed) else {
                continue;
            };
            let [flat, cum] = value_cells(listed.values, measure);
            let address = format!("{:#x}", instruction.address);
            let place = inlined(row, instruction).map_or(String::new(), |frame| {
                let name = shorten_one(&frame.function, INLINED_COLUMNS);
                let file = frame.file.rsplit('/').next().unwrap_or(&frame.file);
                format!("  # {name} {file}:{}", frame.line)
            });
            let shown = if place == above { "" } else { &place };
            let text = format!("    {}{shown}", instruction.text);
            above = place;
            table.row(vec![flat, cum, String::new(), address, text]);
        }
    }
    table
}

/// Number of columns for the name of an inlined function.
const INLINED_COLUMNS: usize = 60;

/// Returns the lines above the table of a function: where its code is, and what is missing of it.
fn code_notes(function: &FunctionAssembly, code: &ListAssembly<'_>) -> String {
    let mut notes = String::new();
    for piece in pieces(function, code.assembly) {
        notes.push_str(&format!("Code: {}\n", printable(&piece_note(piece))));
    }
    let what = match function.instructions.is_empty() {
        true => "No instructions",
        false => "Some instructions are missing",
    };
    for why in code.reasons(function) {
        notes.push_str(&format!("{what}: {}\n", printable(&why)));
    }
    notes
}

/// Returns where a piece of code is, and what is doubtful about it.
fn piece_note(piece: &CodePiece) -> String {
    let symbol = piece.symbol.as_deref().unwrap_or("code without a symbol");
    let cut = match piece.is_cut {
        true => format!(", cut after {} instructions", piece.instructions.len()),
        false => String::new(),
    };
    let doubt = match piece.has_build_id {
        true => "",
        false => "; no build id says whether this file ran",
    };
    let (start, size) = (piece.start, piece.end.saturating_sub(piece.start));
    format!(
        "{symbol} at {start:#x}, {size} bytes of {}{cut}{doubt}",
        piece.binary
    )
}

/// Returns the pieces of code that a function has instructions in.
fn pieces<'a>(
    function: &'a FunctionAssembly,
    assembly: &'a ProfileAssembly,
) -> impl Iterator<Item = &'a CodePiece> {
    let by_piece = function.instructions.chunk_by(|a, b| a.piece == b.piece);
    by_piece.filter_map(|listed| assembly.pieces.get(listed.first()?.piece as usize))
}

/// Returns an instruction and the piece of code that it is in.
fn find<'a>(
    assembly: &'a ProfileAssembly,
    listed: &ListedInstruction,
) -> Option<(&'a CodePiece, &'a CodeInstruction)> {
    let piece = assembly.pieces.get(listed.piece as usize)?;
    let instruction = piece.instructions.get(listed.instruction as usize)?;
    Some((piece, instruction))
}

/// Returns the innermost function of an instruction, if it was inlined into the listed one.
fn inlined<'a>(row: &FunctionListing, instruction: &'a CodeInstruction) -> Option<&'a SourceFrame> {
    let [innermost, _outer, ..] = &*instruction.frames else {
        return None;
    };
    (*innermost.function != row.function).then_some(innermost)
}

/// Returns the row of an instruction, or of a line without one, whose last cells are empty.
fn csv_row(
    row: &FunctionListing,
    line: i64,
    ((flat, cum), instruction): ((i64, i64), [String; 3]),
) -> Vec<String> {
    let numbers = [line, flat, cum].map(|number| number.to_string());
    let mut cells = vec![row.function.clone(), row.file.clone()];
    cells.extend(numbers);
    cells.extend(instruction);
    cells
}

/// Returns the cells of an instruction itself: its address, its text and its file.
fn csv_instruction(listed: &ListedInstruction, assembly: &ProfileAssembly) -> [String; 3] {
    find(assembly, listed)
        .map(|(piece, instruction)| {
            let address = format!("{:#x}", instruction.address);
            [
                address,
                instruction.text.to_string(),
                piece.binary.to_string(),
            ]
        })
        .unwrap_or_default()
}

fn document(
    row: &FunctionListing,
    function: &FunctionAssembly,
    code: &ListAssembly<'_>,
    source: SourceText<'_>,
) -> Value {
    let text = source(&row.file);
    let of_line = |(line, (values, instructions)): (i64, LineWithCode<'_>)| {
        let (flat, cum) = values.unwrap_or_default();
        let source = match source_line(text.as_deref().unwrap_or(&[]), line) {
            ListedSource::Line(text) => Some(text),
            _ => None,
        };
        let each = instructions.iter();
        let instructions = each.filter_map(|listed| instruction(listed, code.assembly));
        let instructions: Vec<Value> = instructions.collect();
        json!({
            "line": line,
            "flat": flat,
            "cum": cum,
            "source": source,
            "instructions": instructions,
        })
    };
    let lines: Vec<Value> = lines(row, function).into_iter().map(of_line).collect();
    let pieces: Vec<Value> = pieces(function, code.assembly)
        .map(|piece| {
            json!({
                "binary": *piece.binary,
                "symbol": piece.symbol,
                "start": piece.start,
                "end": piece.end,
                "cut": piece.is_cut,
                "build_id": piece.has_build_id,
            })
        })
        .collect();
    let mut document = json!({
        "function": row.function,
        "file": row.file,
        "flat": row.flat,
        "cum": row.cum,
        "code": pieces,
        "lines": lines,
    });
    if let Err(why) = text {
        document["no_source"] = json!(why);
    }
    if !function.missing.is_empty() {
        document["missing"] = json!(code.reasons(function));
    }
    document
}

fn instruction(listed: &ListedInstruction, assembly: &ProfileAssembly) -> Option<Value> {
    let (piece, instruction) = find(assembly, listed)?;
    let (flat, cum) = listed.values.unwrap_or_default();
    let frames = instruction
        .frames
        .iter()
        .map(|frame| json!({"function": *frame.function, "file": *frame.file, "line": frame.line}));
    let frames: Vec<Value> = frames.collect();
    Some(json!({
        "address": instruction.address,
        "length": instruction.length,
        "flat": flat,
        "cum": cum,
        "text": *instruction.text,
        "frames": frames,
        "binary": *piece.binary,
    }))
}
