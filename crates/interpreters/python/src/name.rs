//! Reads the name, the file and the lines of a frame, as texts and numbers.

use heapprof_memory::Memory;

use crate::frame::PythonFrame;
use crate::interpreter::PythonRuntime;
use crate::layout::{BYTES_OFFSET, FORM_OFFSET, LENGTH_OFFSET, LineTableFormat};
use crate::line::{LineTableOwner, LineTableProgress, line_of};

/// The texts of a frame, in buffers of the caller, and its lines.
#[derive(Debug)]
pub struct NamedPythonFrame<'a> {
    /// Buffer for the function's name.
    pub name: &'a mut [u8],
    /// Length of the name in bytes.
    pub name_len: usize,
    /// Buffer for the file's name.
    pub file: &'a mut [u8],
    /// Length of the file's name in bytes.
    pub file_len: usize,
    /// The line at which the function begins.
    pub start_line: u32,
    /// The line of the running instruction; 0 if it has none.
    pub line: u32,
}

impl PythonRuntime {
    /// Copies the texts and lines of a frame, whose code must still exist, into `to`. Names are
    /// qualified from 3.11 on. Returns `None` if something can't be read. `reached` holds the
    /// positions up to which earlier calls have read line tables.
    pub fn name<M: Memory>(
        &self,
        memory: M,
        frame: &PythonFrame,
        reached: &mut [LineTableProgress],
        to: &mut NamedPythonFrame<'_>,
    ) -> Option<()> {
        let layout = self.layout;
        let code = frame.code;
        let field = |at: u32| memory.u64(code + u64::from(at));
        let name = field(layout.qualname.unwrap_or(layout.name))?;
        to.name_len = self.text(memory, name, to.name)?;
        to.file_len = self.text(memory, field(layout.filename)?, to.file)?;
        let first = memory.u32(code + u64::from(layout.first_line))?;
        let unit = match layout.lines {
            LineTableFormat::Pairs => i64::from(frame.place as i32).div_euclid(2),
            LineTableFormat::Ends => i64::from(frame.place as i32),
            LineTableFormat::Entries => {
                let begin = self.instructions(memory, frame)?;
                (frame.place.wrapping_sub(begin) as i64).div_euclid(2)
            }
        };
        let table = field(layout.line_table)?;
        let table = table + layout.header;
        let table = (table + BYTES_OFFSET, memory.u64(table + LENGTH_OFFSET)?);
        to.start_line = first;
        let mut none = LineTableProgress::default();
        // Code objects lie at least 64 bytes apart.
        let place = (code >> 6) as usize % reached.len().max(1);
        let reached = reached.get_mut(place).unwrap_or(&mut none);
        let owner = LineTableOwner {
            code,
            version: frame.version,
            first_line: first,
        };
        to.line = line_of(memory, layout.lines, table, owner, unit, reached).unwrap_or(0);
        Some(())
    }

    /// Returns the beginning of the instructions that a frame runs: those in the code object, or a
    /// thread's copy of them. 3.14 without the GIL makes a copy for each thread.
    fn instructions<M: Memory>(&self, memory: M, frame: &PythonFrame) -> Option<u64> {
        /// Maximum number of threads' copies of the instructions. A higher number comes from
        /// overwritten memory.
        const MAX_COPIES: u64 = 1 << 20;
        let layout = self.layout;
        let own = frame.code + u64::from(layout.instructions);
        let Some(copies) = layout.copies else {
            return Some(own);
        };
        let len = 2 * memory.u64(frame.code + layout.header + LENGTH_OFFSET)?;
        let is_in = |begin: u64| frame.place.wrapping_sub(begin) < len;
        if is_in(own) {
            return Some(own);
        }
        let all = memory.u64(frame.code + u64::from(copies))?;
        let count = memory.u64(all)?.min(MAX_COPIES);
        let copy = |i: u64| memory.u64(all + 8 + 8 * i);
        let found = (0..count).map_while(copy).find(|&copy| is_in(copy));
        // Before a function runs, its frame is before the first instruction.
        Some(found.unwrap_or(own))
    }

    /// Copies the text of a `str` as UTF-8 into `to`, cut after a whole character if it is too
    /// long. Returns the number of bytes.
    pub(crate) fn text<M: Memory>(&self, memory: M, at: u64, to: &mut [u8]) -> Option<usize> {
        let behind = at + self.layout.header;
        let (len, form) = (
            memory.u64(behind + LENGTH_OFFSET)?,
            memory.u32(behind + FORM_OFFSET)?,
        );
        let form = form >> self.layout.form;
        let (width, is_compact, is_ascii) = (form & 7, form >> 3 & 1 == 1, form >> 4 & 1 == 1);
        let from = match (is_compact, is_ascii) {
            (false, _) => memory.u64(at + self.layout.other)?,
            (true, true) => at + self.layout.ascii,
            (true, false) => at + self.layout.other,
        };
        if (is_compact, is_ascii, width) == (true, true, 1) {
            let done = to.len().min(usize::try_from(len).ok()?);
            return memory.read(from, &mut to[..done]).then_some(done);
        }
        let mut done = 0;
        for i in 0..len {
            let character = match width {
                1 => memory.u8(from + i)?.into(),
                2 => memory.u16(from + 2 * i)?.into(),
                4 => memory.u32(from + 4 * i)?,
                _ => return None,
            };
            let mut room = [0; 4];
            let bytes: &[u8] = match (char::from_u32(character), character) {
                (Some(character), _) => character.encode_utf8(&mut room).as_bytes(),
                // A byte of a file's name that was no UTF-8.
                (None, 0xdc80..=0xdcff) => {
                    room[0] = character as u8;
                    &room[..1]
                }
                (None, _) => b"?",
            };
            let Some(to) = to.get_mut(done..done + bytes.len()) else {
                break;
            };
            to.copy_from_slice(bytes);
            done += bytes.len();
        }
        Some(done)
    }
}
