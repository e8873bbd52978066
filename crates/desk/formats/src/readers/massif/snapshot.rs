//! Reads one snapshot: its sums, and its tree, which goes from functions to their callers.

use crate::error::{FormatError, shortened};
use crate::figures::{decimal, value};
use crate::lines::LineReader;
use crate::tally::overflow;
use crate::texts::TextTable;

use super::{advance, bytes, current_value, field};

/// A snapshot as the file describes it.
pub(super) struct MassifSnapshot {
    pub(super) number: u64,
    /// The time in the file's unit.
    pub(super) time: String,
    /// Number of bytes that the program requested.
    pub(super) heap: i64,
    /// Number of bytes that the allocator added for headers and rounding.
    pub(super) extra: i64,
    /// Number of bytes in the stacks of all threads.
    pub(super) stacks: i64,
    pub(super) is_peak: bool,
    /// The text of the tree's root; empty if there is no tree.
    root: String,
    /// The nodes of the tree without the root. Each node comes before its callers.
    nodes: Vec<MassifNode>,
    /// Number of the frame that stands for bytes that the tree does not account for.
    unaccounted: u32,
}

struct MassifNode {
    /// The depth in the tree, from 1.
    depth: usize,
    frame: u32,
    bytes: i64,
    line: u64,
}

/// Name of the frame that stands for callers that Massif did not list.
const BELOW_THRESHOLD: &str = "(below massif's threshold)";

/// Reads a snapshot from the current line on.
pub(super) fn read(
    lines: &mut LineReader<'_>,
    frames: &mut TextTable,
) -> Result<MassifSnapshot, FormatError> {
    let number = decimal(current_value(lines, "snapshot")?);
    let number = number.ok_or_else(|| lines.wrong("snapshot= and a number"))?;
    let time = String::from_utf8_lossy(field(lines, "time")?).into_owned();
    if time.is_empty() || !time.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(lines.wrong("time= and a number"));
    }
    let mut snapshot = MassifSnapshot {
        number,
        time,
        heap: bytes(lines, "mem_heap_B")?,
        extra: bytes(lines, "mem_heap_extra_B")?,
        stacks: bytes(lines, "mem_stacks_B")?,
        is_peak: false,
        root: String::new(),
        nodes: Vec::new(),
        unaccounted: 0,
    };
    let sum = snapshot.heap.checked_add(snapshot.extra);
    if sum.and_then(|s| s.checked_add(snapshot.stacks)).is_none() {
        return Err(lines.wrong(
            "mem_heap_B, mem_heap_extra_B and mem_stacks_B whose sum fits in \
                                64 bits",
        ));
    }
    let unaccounted = match field(lines, "heap_tree")? {
        b"empty" => "(no stacks in this snapshot)",
        kind @ (b"detailed" | b"peak") => {
            snapshot.is_peak = kind == b"peak";
            snapshot.tree(lines, frames)?;
            "(not in massif's tree)"
        }
        _ => return Err(lines.wrong("heap_tree=empty, detailed or peak")),
    };
    snapshot.unaccounted = intern(frames, unaccounted)?;
    Ok(snapshot)
}

fn intern(frames: &mut TextTable, text: &str) -> Result<u32, FormatError> {
    let number = frames.intern(text);
    number.ok_or_else(|| FormatError::TooMuch("4294967295 different frames".to_string()))
}

impl MassifSnapshot {
    pub(super) fn has_tree(&self) -> bool {
        !self.root.is_empty()
    }

    /// Returns the total number of bytes, as in the column total(B) of ms_print.
    pub(super) fn total(&self) -> i64 {
        self.heap
            .saturating_add(self.extra)
            .saturating_add(self.stacks)
    }

    /// Returns the sample type and unit that Valgrind's --xtree-memory measured; `None` for a
    /// snapshot of Massif.
    pub(super) fn measure(&self) -> Option<(&'static str, &'static str)> {
        let (name, _) = self.root.split_once(" : ")?;
        match name {
            "curB" => Some(("inuse_space", "bytes")),
            "curBk" => Some(("inuse_objects", "count")),
            "totB" => Some(("alloc_space", "bytes")),
            "totBk" => Some(("alloc_objects", "count")),
            "totFdB" => Some(("freed_space", "bytes")),
            "totFdBk" => Some(("freed_objects", "count")),
            _ => None,
        }
    }

    /// Reads the tree. Each node is a line, which is indented by its depth and begins with the
    /// number of its callers.
    fn tree(
        &mut self,
        lines: &mut LineReader<'_>,
        frames: &mut TextTable,
    ) -> Result<(), FormatError> {
        // Number of callers that are still to come, for each node from the root to the current one.
        let mut missing: Vec<u64> = Vec::new();
        loop {
            if !advance(lines)? {
                return Err(lines.ended("more lines of the tree"));
            }
            let line = lines.line();
            let depth = line.iter().take_while(|&&b| b == b' ').count();
            if depth != missing.len() {
                let expected = format!("a line of the tree, indented by {}", missing.len());
                return Err(lines.wrong(expected));
            }
            let (callers, bytes, text) = node(line[depth..].trim_ascii_end()).ok_or_else(|| {
                lines.wrong("nCALLERS: BYTES 0xADDRESS: function (file:line), as in a tree")
            })?;
            let text = String::from_utf8_lossy(text);
            if depth == 0 {
                self.root = text.into_owned();
            } else {
                let frame = match &*text {
                    frame if frame.starts_with("0x") => frame,
                    rest if rest.starts_with("in ") && callers == 0 => BELOW_THRESHOLD,
                    _ => {
                        let found = shortened(text.as_bytes());
                        return Err(lines.wrong_part("0xADDRESS: function (file:line)", found));
                    }
                };
                let frame = intern(frames, frame)?;
                self.nodes.push(MassifNode {
                    depth,
                    frame,
                    bytes,
                    line: lines.number(),
                });
            }
            if let Some(missing) = missing.last_mut() {
                *missing -= 1;
            }
            missing.push(callers);
            while missing.last() == Some(&0) {
                missing.pop();
            }
            if missing.is_empty() {
                return Ok(());
            }
        }
    }

    /// Calls `each` with each path of frames, leaf first, and the bytes of the path that no further
    /// caller accounts for. The sum of these bytes is `heap`. Errors, including errors of `each`,
    /// name the line of the node.
    pub(super) fn own_bytes(
        &self,
        mut each: impl FnMut(&[u32], i64) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let mut own: Vec<i64> = self.nodes.iter().map(|node| node.bytes).collect();
        let mut rest = self.heap;
        let mut ancestors: Vec<usize> = Vec::new();
        let less = |sum: i64, node: &MassifNode| {
            let less = sum.checked_sub(node.bytes);
            let too_much = || overflow("a node of the tree without its callers");
            less.ok_or_else(|| too_much().at_line(node.line))
        };
        for (i, node) in self.nodes.iter().enumerate() {
            ancestors.truncate(node.depth - 1);
            match ancestors.last() {
                Some(&callee) => own[callee] = less(own[callee], node)?,
                None => rest = less(rest, node)?,
            }
            ancestors.push(i);
        }
        let mut path: Vec<u32> = Vec::new();
        for (node, own) in self.nodes.iter().zip(own) {
            path.truncate(node.depth - 1);
            path.push(node.frame);
            if own != 0 {
                each(&path, own).map_err(|error| error.at_line(node.line))?;
            }
        }
        if rest != 0 {
            each(&[self.unaccounted], rest)?;
        }
        Ok(())
    }
}

/// Splits `n3: 1234 text` into the number of callers, the bytes, and the text.
fn node(line: &[u8]) -> Option<(u64, i64, &[u8])> {
    let rest = line.strip_prefix(b"n")?;
    let colon = rest.iter().position(|&b| b == b':')?;
    let callers = decimal(&rest[..colon])?;
    let rest = rest[colon + 1..].strip_prefix(b" ")?;
    let space = rest.iter().position(|&b| b == b' ')?;
    Some((callers, value(&rest[..space])?, &rest[space + 1..]))
}
