//! A Python frame, with a number that distinguishes its code from other code at the same address.

use heapprof_memory::Memory;

use crate::layout::{HASH_OFFSET, PythonLayout};

/// A frame as numbers. Equal frames are at the same instruction of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonFrame {
    /// Address of the code object.
    pub code: u64,
    /// The instruction: its address, or its offset in the code object.
    pub place: u64,
    /// A number that distinguishes the code from other code that was at the same address.
    pub version: u32,
    /// The address on the native stack where the evaluator was entered for this frame; 0 if it was
    /// not entered for this frame, 1 if the address is not known.
    pub entry: u64,
}

/// A frame with its address.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct LocatedPythonFrame {
    pub(crate) at: u64,
    pub(crate) frame: PythonFrame,
}

/// The low bits of a pointer to code. Since 3.14 they are a mark.
pub(crate) const POINTER_MARK_MASK: u64 = 3;

/// Returns a number that distinguishes a code object of Python 3.11 or older from other code
/// objects that had the same address. The number is made of the address of the line table, the
/// name, the first line, and the address of the file's name. All of these are needed: module bodies
/// have equal names, and notebook cells also have equal first lines.
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

/// Returns the result of [`version_of`] for a code object that was read before, so that its address
/// need not be checked again.
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

/// Returns the offsets of the fields that distinguish a code object from other code objects.
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
    // The factors fit an instruction, and each spreads differences over the upper half in its own
    // way.
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

    /// Tests that a small change of the table's address, the first line, or both gives another
    /// version. Tables lie at least 16 bytes apart, and lines are small numbers.
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
