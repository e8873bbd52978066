//! The rows of pprof's view Source, in the columns of pprof's page.

use heapprof_dropin::report::{InstructionRow, LineCode, ListingLine, ListingRow};
use heapprof_web::{ViewFunction, ViewInstruction, ViewLine};

/// Returns the functions of a listing.
pub(super) fn functions(rows: Vec<ListingRow>) -> Vec<ViewFunction> {
    let mut functions: Vec<ViewFunction> = Vec::new();
    for row in rows {
        match row {
            ListingRow::Function(function) => functions.push(ViewFunction {
                sums: format!(
                    "  Total:  {:>10} {:>10} (flat, cum) {}",
                    function.flat, function.cum, function.percent
                ),
                name: function.name,
                file: function.file,
                lines: Vec::new(),
            }),
            ListingRow::Line(row) => {
                if let Some(function) = functions.last_mut() {
                    function.lines.push(line(row));
                }
            }
            ListingRow::End => {}
        }
    }
    functions
}

fn line(line: ListingLine) -> ViewLine {
    let ListingLine {
        number, flat, cum, ..
    } = &line;
    let text = String::from_utf8_lossy(&line.text);
    ViewLine {
        text: format!(" {number:>6}   {flat:>10} {cum:>10} {:8}  {text}", ""),
        has_code: line.code != LineCode::Nothing,
        instructions: line.instructions.into_iter().map(instruction).collect(),
    }
}

fn instruction(row: InstructionRow) -> ViewInstruction {
    match row {
        InstructionRow::Gap => ViewInstruction {
            text: format!(" {:8} {:>28}", "", "⋮"),
            place: String::new(),
            is_call: false,
        },
        InstructionRow::InlinedCall { text, place } => ViewInstruction {
            text: format!(" {:8} {:10} {:10} {:8}  {text}", "", "", "", ""),
            place,
            is_call: true,
        },
        InstructionRow::Instruction {
            flat,
            cum,
            address,
            text,
            file,
            line,
        } => ViewInstruction {
            text: format!(" {:8} {flat:>10} {cum:>10} {address:>8x}: {text}", ""),
            place: match file.is_empty() {
                true => String::new(),
                false => format!("{file}:{line}"),
            },
            is_call: false,
        },
    }
}
