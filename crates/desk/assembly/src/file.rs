//! Disassembles the functions of one file around some addresses.

use std::collections::HashMap;
use std::rc::Rc;

use heapprof_symbolize::code::{CodeFile, CodeRange};
use heapprof_symbolize::demangle;

use crate::decoded::DecodedCode;
use crate::targets::find_names;
use crate::{CodeInstruction, CodePiece, MAX_FUNCTION_INSTRUCTIONS, SourceFrame};

/// The code of one file, with what is known about each of the addresses that were asked for.
pub(crate) struct FileCode {
    pub(crate) pieces: Vec<CodePiece>,
    /// The index of the piece of each address.
    pub(crate) piece_of: Vec<PieceOfAddress>,
}

/// The code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceOfAddress {
    /// The index of the piece.
    Piece(usize),
    /// No function is known there.
    NoFunction,
    /// Too many instructions were decoded before.
    BeyondLimit,
}

/// Disassembles the functions that contain some virtual addresses, which are in ascending order.
/// `left` is the number of instructions that may still be decoded.
pub(crate) fn disassemble(file: &CodeFile<'_>, addresses: &[u64], left: &mut usize) -> FileCode {
    let ranges = file.functions_at(addresses);
    let mut index = HashMap::new();
    let mut decoded: Vec<(CodeRange, DecodedCode, bool)> = Vec::new();
    let mut piece = |range: CodeRange| {
        let key = (range.start, range.end);
        if let Some(&known) = index.get(&key) {
            return known;
        }
        let code = file.code(range.start, range.end);
        let found = match (code.is_empty(), *left) {
            (true, _) => PieceOfAddress::NoFunction,
            (_, 0) => PieceOfAddress::BeyondLimit,
            _ => {
                let most = MAX_FUNCTION_INSTRUCTIONS.min(*left);
                let all = DecodedCode::new(file.processor(), code, range.start, most);
                *left -= all.len().min(*left);
                let is_cut = all.len() == most && all.end().is_some_and(|end| end < range.end);
                decoded.push((range, all, is_cut));
                PieceOfAddress::Piece(decoded.len() - 1)
            }
        };
        index.insert(key, found);
        found
    };
    let piece_of = ranges.into_iter();
    let piece_of: Vec<PieceOfAddress> = piece_of
        .map(|range| range.map_or(PieceOfAddress::NoFunction, &mut piece))
        .collect();
    let references = decoded.iter().flat_map(|(_, all, _)| all.references());
    let mut own: Vec<(u64, u64)> = decoded.iter().map(|(r, ..)| (r.start, r.end)).collect();
    own.sort_unstable();
    // A jump to the beginning of a listed function is a call, so its name is shown.
    let is_own = |address: u64| {
        let after = own.partition_point(|&(start, _)| start < address);
        let before = after.checked_sub(1).and_then(|before| own.get(before));
        before.is_some_and(|&(_, end)| address < end)
    };
    let names = find_names(file, references, is_own);
    let mut lines = LineReader::default();
    let binary: Rc<str> = file.path().display().to_string().into();
    let pieces = decoded.into_iter().map(|(range, all, is_cut)| {
        let mut instructions = Vec::with_capacity(all.len());
        all.format(&names, |address, length, text| {
            instructions.push(CodeInstruction {
                address,
                length,
                text: text.into(),
                frames: lines.frames(file, address),
            });
        });
        CodePiece {
            binary: binary.clone(),
            has_build_id: file.has_build_id(),
            symbol: range.name,
            start: range.start,
            end: range.end,
            is_cut,
            instructions,
        }
    });
    FileCode {
        pieces: pieces.collect(),
        piece_of,
    }
}

/// Largest number of functions at an address. The functions between the inner ones and the
/// outermost one are left out.
const MAX_DEPTH: usize = 256;
/// Number of functions at all addresses of a file from which on only the innermost and the
/// outermost one are kept.
const MAX_FRAMES: usize = 4 << 20;

/// Leaves out the functions in the middle, so that `depth` remain.
fn shorten(frames: &mut Vec<SourceFrame>, depth: usize) {
    if frames.len() > depth
        && let Some(outermost) = frames.pop()
    {
        frames.truncate(depth.saturating_sub(1));
        frames.push(outermost);
    }
}

/// Reads the source lines of instructions. Equal texts and equal frames share their memory.
#[derive(Default)]
struct LineReader {
    texts: HashMap<String, Rc<str>>,
    /// The source names of linker names.
    names: HashMap<String, Rc<str>>,
    last: Option<Rc<[SourceFrame]>>,
    /// Number of functions that were kept.
    kept: usize,
}

impl LineReader {
    fn frames(&mut self, file: &CodeFile<'_>, address: u64) -> Rc<[SourceFrame]> {
        let mut frames = Vec::new();
        file.frames(address, |frame| {
            frames.push(SourceFrame {
                function: self.name(frame.function),
                file: self.text(frame.file),
                line: frame.line,
            });
        });
        shorten(
            &mut frames,
            if self.kept < MAX_FRAMES { MAX_DEPTH } else { 2 },
        );
        if let Some(last) = self.last.as_ref().filter(|last| ***last == *frames) {
            return last.clone();
        }
        self.kept += frames.len();
        let frames: Rc<[SourceFrame]> = frames.into();
        self.last = Some(frames.clone());
        frames
    }

    fn text(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let kept: Rc<str> = text.into();
        self.texts.insert(text.to_string(), kept.clone());
        kept
    }

    fn name(&mut self, linker_name: &str) -> Rc<str> {
        if let Some(known) = self.names.get(linker_name) {
            return known.clone();
        }
        let name = demangle(linker_name);
        let name = self.text(name.as_deref().unwrap_or(linker_name));
        self.names.insert(linker_name.to_string(), name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_in_the_middle_are_left_out() {
        let frames = |count: u32| -> Vec<SourceFrame> {
            let frame = |line| SourceFrame {
                function: "f".into(),
                file: "f.c".into(),
                line,
            };
            (0..count).map(frame).collect()
        };
        for (count, depth, expected) in [
            (0, 2, vec![]),
            (1, 2, vec![0]),
            (2, 2, vec![0, 1]),
            (5, 2, vec![0, 4]),
            (5, 3, vec![0, 1, 4]),
            (5, 5, vec![0, 1, 2, 3, 4]),
        ] {
            let mut frames = frames(count);
            shorten(&mut frames, depth);
            let lines: Vec<u32> = frames.iter().map(|frame| frame.line).collect();
            assert_eq!(lines, expected, "{count} {depth}");
        }
    }
}
