//! Cuts the lines of a file into functions.

use super::instructions::{InstructionMap, ListedFile};
use super::samples::SampledAddresses;

/// Number of lines without instructions from which on a function is cut in two.
const MIN_GAP: i64 = 20;
/// Number of lines that are shown before and after a function.
const CONTEXT_LINES: i64 = 5;

/// A range of lines that belongs to one function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListedFunction<'a> {
    pub(super) name: &'a str,
    /// The first line.
    pub(super) begin: i64,
    /// The line after the last one.
    pub(super) end: i64,
    pub(super) flat: i64,
    pub(super) cum: i64,
}

/// Returns the functions of a file in ascending order, each with some lines around it.
pub(super) fn functions<'a>(
    file: &ListedFile,
    map: &'a InstructionMap,
    samples: &SampledAddresses<'a>,
) -> Vec<ListedFunction<'a>> {
    let mut functions: Vec<ListedFunction<'a>> = Vec::new();
    for (&line, instructions) in &file.lines {
        let name = file.functions.get(&line).map_or("", |&id| map.text(id));
        let name = samples.source_name(name);
        let (mut flat, mut cum) = (0i64, 0i64);
        for placed in instructions {
            if let Some(instruction) = map.instruction(placed.address) {
                flat = flat.wrapping_add(instruction.flat);
                cum = cum.wrapping_add(instruction.cum);
            }
        }
        let end = line.saturating_add(1);
        match functions.last_mut() {
            Some(last) if last.name == name && line.saturating_sub(last.end) < MIN_GAP => {
                last.end = end;
                last.flat = last.flat.wrapping_add(flat);
                last.cum = last.cum.wrapping_add(cum);
            }
            _ => functions.push(ListedFunction {
                name,
                begin: line,
                end,
                flat,
                cum,
            }),
        }
    }
    add_context(&mut functions);
    functions
}

/// Adds some lines before and after each function. Two functions share the lines between them.
fn add_context(functions: &mut [ListedFunction<'_>]) {
    // Line 0 stands for an unknown line, so it stays the only one.
    if let Some(first) = functions.first_mut() {
        if first.begin > CONTEXT_LINES {
            first.begin -= CONTEXT_LINES;
        } else if first.begin > 1 {
            first.begin = 1;
        }
    }
    for at in 1..functions.len() {
        if let [before, after] = &mut functions[at - 1..=at] {
            let gap = after.begin.saturating_sub(before.end) / 2;
            let half = gap.min(CONTEXT_LINES);
            before.end = before.end.saturating_add(half);
            after.begin = after.begin.saturating_sub(half);
        }
    }
    if let Some(last) = functions.last_mut() {
        last.end = last.end.saturating_add(CONTEXT_LINES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beginnings and ends of functions.
    type Ranges = &'static [(i64, i64)];

    #[test]
    fn lines_around_functions() {
        let table: [(Ranges, Ranges); 7] = [
            (&[], &[]),
            (&[(0, 1)], &[(0, 6)]),
            (&[(1, 4)], &[(1, 9)]),
            (&[(3, 4)], &[(1, 9)]),
            (&[(10, 12)], &[(5, 17)]),
            (&[(10, 12), (17, 20)], &[(5, 14), (15, 25)]),
            (&[(10, 12), (60, 61)], &[(5, 17), (55, 66)]),
        ];
        for (given, expected) in table {
            let mut functions: Vec<ListedFunction<'_>> = given
                .iter()
                .map(|&(begin, end)| ListedFunction {
                    name: "f",
                    begin,
                    end,
                    flat: 0,
                    cum: 0,
                })
                .collect();
            add_context(&mut functions);
            let found: Vec<(i64, i64)> = functions.iter().map(|f| (f.begin, f.end)).collect();
            assert_eq!(found, expected);
        }
    }
}
