//! A frame of Python's, and what tells its code from other code at the same address.

use heapprof_memory::Memory;

use crate::layout::{HASH_OFFSET, PythonLayout};

/// A frame as numbers. Equal frames are the same place in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonFrame {
    /// The code object.
    pub code: u64,
    /// The instruction in it.
    pub place: u64,
    /// It differs if other code has come to the same address.
    pub version: u32,
    /// 0, or where on the native stack the evaluator was entered for this frame; 1 if it was
    /// entered there, but the place is not known.
    pub entry: u64,
}

/// A frame, and where it lies.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct LocatedPythonFrame {
    pub(crate) at: u64,
    pub(crate) frame: PythonFrame,
}

/// Low bits of a pointer to code are a mark from 3.14 on.
pub(crate) const POINTER_MARK_MASK: u64 = 3;

/// What tells a code object up to 3.11 from others that lie at the same address before or after it:
/// its table of lines, its name, its first line, and where its file's name is. Bodies of modules
/// have one name, and cells of a notebook one first line too.
#[inline(always)]
pub(crate) fn version_of<M: Memory>(memory: M, layout: &PythonLayout, code: u64) -> Option<u32> {
    let [table, name, first, file] = memory.fields(code, telling_fields(layout))?;
    Some(mix_fields(
        table,
        file,
        first,
        memory.u64(name + HASH_OFFSET)?,
    ))
}

/// As [`version_of`], of code that was seen before.
#[inline(always)]
pub(crate) fn known_version_of<M: Memory>(
    memory: M,
    layout: &PythonLayout,
    code: u64,
) -> Option<u32> {
    let [table, name, first, file] = memory.known_fields(code, telling_fields(layout))?;
    Some(mix_fields(
        table,
        file,
        first,
        memory.u64(name + HASH_OFFSET)?,
    ))
}

/// Where a code object has what tells it from others.
#[inline(always)]
fn telling_fields(layout: &PythonLayout) -> [u32; 4] {
    [
        layout.line_table,
        layout.name,
        layout.first_line,
        layout.filename,
    ]
}

#[inline(always)]
fn mix_fields(table: u64, file: u64, first: u64, hash: u64) -> u32 {
    // They fit an instruction, and spread what differs over the upper half, each in another way.
    const TABLE_FACTOR: u64 = 0x7f4a_7c15;
    const FILE_FACTOR: u64 = 0x5851_f42d;
    const FIRST_LINE_FACTOR: u64 = 0x45d9_f3b3;
    let texts = table
        .wrapping_mul(TABLE_FACTOR)
        .wrapping_add(file.wrapping_mul(FILE_FACTOR));
    let mixed = texts
        .wrapping_add(hash)
        .wrapping_add(first.wrapping_mul(FIRST_LINE_FACTOR) << 32);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables lie 16 bytes apart at least, and lines are small numbers: what differs by a little
    /// has another version, also if both do.
    #[test]
    fn tables_and_lines_do_not_make_up_for_each_other() {
        let version = |table: u64, first: u64| mix_fields(0x7f12_3456_7890 + table, 77, first, 5);
        let all: std::collections::BTreeSet<u32> = (0..400)
            .flat_map(|table| (0..400).map(move |first| version(16 * table, first)))
            .collect();
        // By chance, 3 of 160,000 would be the same.
        assert!(all.len() > 160_000 - 30, "{}", all.len());
    }
}
