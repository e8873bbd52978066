//! The names of notebooks' cells.

use std::cell::Cell;

use heapprof_python::PythonRuntime;

use super::state::PythonStacks;
use crate::kernel_memory::KernelMemory;

/// The notebook cell whose name a thread has looked up last. All zeros is the initial state.
#[repr(C)]
pub(super) struct CachedCell {
    /// Hash of the name of the cell's file.
    file: u64,
    /// Length of the name in bytes.
    len: usize,
    name: [u8; MAX_CELL_NAME_LEN],
}

/// Maximum length of a cell's name, in bytes.
const MAX_CELL_NAME_LEN: usize = 256;

/// Finds the name of a notebook's cell: the first line of its text. Returns the length of the name;
/// `None` if the text can't be found.
#[cold]
pub(super) fn name_cell(
    this: &PythonStacks,
    python: &PythonRuntime,
    known: Option<&mut CachedCell>,
    file: &[u8],
    name: &mut [u8],
) -> Option<usize> {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let file_hash = file.iter().fold(0xcbf2_9ce4_8422_2325, hash);
    let mut none = CachedCell {
        file: 0,
        len: 0,
        name: [0; MAX_CELL_NAME_LEN],
    };
    let known = known.unwrap_or(&mut none);
    if known.file != file_hash || known.len == 0 {
        let state = this.thread_state(python)?;
        // Without the GIL, other threads may change what is read.
        if !python.has_gil() || !this.holds_gil(python, state) {
            return None;
        }
        let failed = Cell::new(false);
        let memory = KernelMemory { failed: &failed };
        known.len = 0;
        known.len = python.cell(memory, state, file, &mut known.name)?;
        known.file = file_hash;
    }
    let found = known.name.get(..known.len)?;
    name.get_mut(..known.len)?.copy_from_slice(found);
    Some(known.len)
}
