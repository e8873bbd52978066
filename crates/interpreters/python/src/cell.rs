//! Names a notebook cell by the first line of its text.
//!
//! IPython compiles each cell under a file name for which no file exists. It stores the cell's text
//! in `linecache.cache`, where tracebacks find it: the file name is the key, and the value is a
//! tuple of size, time, lines and name.

use heapprof_memory::Memory;

use crate::interpreter::PythonRuntime;
use crate::layout::LENGTH_OFFSET;

/// Maximum number of lines that are searched for the first line that is not blank.
const MAX_LINES: u64 = 16;
/// Maximum number of characters of a line that are shown.
const MAX_COLUMNS: usize = 60;

/// Offset, in a module object, of its dictionary.
const MODULE_DICTIONARY_OFFSET: u64 = 16;
/// Offset, in a list object, of the address of its elements.
const LIST_ITEMS_OFFSET: u64 = 24;
/// The index of the lines in a tuple of `linecache.cache`.
const LINES_ELEMENT: u64 = 2;
/// The number of elements of a tuple in `linecache.cache`.
const ELEMENT_COUNT: u64 = 4;

/// Whether a frame with this name and file is the body of a notebook cell.
pub fn is_cell(name: &[u8], file: &[u8]) -> bool {
    // IPython 8 named some cells by their first line that runs.
    let is_body = name == b"<module>" || name.starts_with(b"<cell line: ");
    let of_kernel = b"/ipykernel_";
    let is_of_kernel = || file.windows(of_kernel.len()).any(|part| part == of_kernel);
    is_body && (file.starts_with(b"<ipython-input-") || is_of_kernel())
}

impl PythonRuntime {
    /// Writes the name of a notebook cell into `to`: `cell: ` and the first line of the cell.
    /// `file` is the file name of the cell, and `state` is the state of the calling thread, which
    /// must have the GIL. Returns the number of bytes; `None` if there is no such cell.
    pub fn cell<M: Memory>(
        &self,
        memory: M,
        state: u64,
        file: &[u8],
        to: &mut [u8],
    ) -> Option<usize> {
        let header = self.layout.header;
        let modules = self.modules(memory, state)?;
        let module = self.value(memory, modules, b"linecache")?;
        let names = memory.u64(module + header + MODULE_DICTIONARY_OFFSET)?;
        let texts = self.value(memory, names, b"cache")?;
        let tuple = self.value(memory, texts, file)? + header;
        if memory.u64(tuple + LENGTH_OFFSET)? != ELEMENT_COUNT {
            return None;
        }
        let lines = memory.u64(tuple + self.layout.elements + 8 * LINES_ELEMENT)? + header;
        let count = memory.u64(lines + LENGTH_OFFSET)?.min(MAX_LINES);
        let first = memory.u64(lines + LIST_ITEMS_OFFSET)?;
        for i in 0..count {
            let mut room = [0; 4 * (MAX_COLUMNS + 1)];
            let len = self.text(memory, memory.u64(first + 8 * i)?, &mut room)?;
            // The text is whole UTF-8, except for bytes that were none.
            let line = match core::str::from_utf8(room.get(..len)?) {
                Ok(line) => line,
                Err(error) => core::str::from_utf8(&room[..error.valid_up_to()]).ok()?,
            };
            let line = line.trim();
            if !line.is_empty() {
                return put_line(line, to);
            }
        }
        None
    }
}

/// Returns the name of a cell's magic, such as `time` for `%%time`. `line` is the call into which
/// IPython has turned the magic.
fn magic(line: &str) -> Option<&str> {
    let name = line.strip_prefix("get_ipython().run_cell_magic('")?;
    Some(name.split_once('\'')?.0)
}

/// Copies the beginning of a line into `to`, followed by dots if the line is longer. Returns the
/// number of bytes.
fn put_line(line: &str, to: &mut [u8]) -> Option<usize> {
    if let Some(name) = magic(line) {
        return put_all(["cell: ", "%%", name], to);
    }
    let end = line.char_indices().nth(MAX_COLUMNS);
    let (shown, more) = match end {
        Some((end, _)) => (&line[..end], "..."),
        None => (line, ""),
    };
    put_all(["cell: ", shown, more], to)
}

fn put_all(parts: [&str; 3], to: &mut [u8]) -> Option<usize> {
    let mut done = 0;
    for part in parts {
        to.get_mut(done..done + part.len())?
            .copy_from_slice(part.as_bytes());
        done += part.len();
    }
    Some(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_known_by_their_files() {
        assert!(is_cell(b"<module>", b"/tmp/ipykernel_7/1234.py"));
        assert!(is_cell(b"<cell line: 3>", b"<ipython-input-2-0a1b>"));
        assert!(!is_cell(b"load", b"/tmp/ipykernel_7/1234.py"));
        assert!(!is_cell(b"<module>", b"/home/x/kernel.py"));
    }

    #[test]
    fn a_long_line_is_cut() {
        let mut to = [0; 300];
        let len = put_line("x = 1", &mut to).unwrap();
        assert_eq!(&to[..len], b"cell: x = 1");
        let long = "\u{e4}".repeat(61);
        let len = put_line(&long, &mut to).unwrap();
        let expected = std::format!("cell: {}...", "\u{e4}".repeat(60));
        assert_eq!(&to[..len], expected.as_bytes());
        assert_eq!(put_line("x = 1", &mut to[..8]), None);
        let len = put_line("get_ipython().run_cell_magic('time', '', 'a = [", &mut to).unwrap();
        assert_eq!(&to[..len], b"cell: %%time");
    }
}
