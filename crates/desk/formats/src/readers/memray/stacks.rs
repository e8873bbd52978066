//! Stacks of a capture of memray: a tree of calls, and the functions and lines of its frames.

use foldhash::HashMap;
use heapprof_profile::LocationIndex;

use super::header::MemrayHeader;
use super::line_table;
use super::record::MemrayRecord;
use crate::error::FormatError;
use crate::tally::{SampleTally, TextFrame, overflow};
use crate::texts::TextTable;

/// A function. In an old file, a single line of a function.
struct MemrayCode {
    name: u32,
    file: u32,
    line: i64,
    /// Start and end of the function's line table in `table`.
    lines: (usize, usize),
}

/// All calls, and the stack of each thread.
#[derive(Default)]
pub(super) struct MemrayStacks {
    texts: TextTable,
    table: Vec<u8>,
    code: Vec<MemrayCode>,
    code_of: HashMap<u64, u32>,
    /// Frames, each a code object and an offset in it.
    frame: Vec<(u64, i64)>,
    frame_of: HashMap<(u64, i64), u32>,
    /// Calls, numbered from 1. Each call has the number of the caller's call (0 if there is none)
    /// and a frame.
    call: Vec<(u32, u32)>,
    call_of: HashMap<(u32, u32), u32>,
    threads: HashMap<u64, u32>,
    /// The calls of each thread, outermost first.
    stack: Vec<Vec<u32>>,
    /// The names of threads, and their numbers in the file.
    pub(super) thread: Vec<(String, u64)>,
    /// Number of the running thread.
    running: Option<u32>,
}

impl MemrayStacks {
    /// Estimates how many bytes of memory the stacks take.
    pub(super) fn memory(&self) -> u64 {
        let tables = self.table.len()
            + size_of_val(&self.code[..])
            + size_of_val(&self.frame[..])
            + size_of_val(&self.call[..])
            + self.code_of.capacity() * 2 * size_of::<(u64, u32)>()
            + self.frame_of.capacity() * 2 * size_of::<(u64, i64, u32)>()
            + self.call_of.capacity() * 2 * size_of::<(u32, u32, u32)>()
            + self.threads.capacity() * 2 * size_of::<(u64, u32)>()
            + self.thread.capacity() * size_of::<(String, u64)>()
            + self.stack.capacity() * size_of::<Vec<u32>>();
        tables as u64 + self.texts.memory()
    }

    /// Returns the index of a thread. A new thread is added.
    pub(super) fn thread(&mut self, id: u64) -> Result<u32, FormatError> {
        if let Some(&number) = self.threads.get(&id) {
            return Ok(number);
        }
        let number = u32::try_from(self.thread.len()).map_err(|_| overflow("threads"))?;
        self.threads.insert(id, number);
        self.thread.push((String::new(), id));
        self.stack.push(Vec::new());
        Ok(number)
    }

    /// Returns the number of the running thread.
    pub(super) fn running(&self) -> Option<u32> {
        self.running
    }

    pub(super) fn run(&mut self, id: u64) -> Result<(), FormatError> {
        self.running = Some(self.thread(id)?);
        Ok(())
    }

    pub(super) fn name_thread(&mut self, name: &[u8]) -> Option<()> {
        let (known, _) = self.thread.get_mut(self.running? as usize)?;
        *known = String::from_utf8_lossy(name).into_owned();
        Some(())
    }

    /// Returns the innermost call of the running thread; 0 if there is none.
    pub(super) fn innermost(&self) -> u32 {
        let stack = self
            .running
            .and_then(|thread| self.stack.get(thread as usize));
        stack.and_then(|stack| stack.last()).copied().unwrap_or(0)
    }

    /// Adds a call of the running thread. Returns `None` if no thread is running.
    pub(super) fn push(&mut self, code: u64, offset: i64) -> Result<Option<()>, FormatError> {
        let frame = self.frame(code, offset)?;
        let outside = self.innermost();
        let call = match self.call_of.get(&(outside, frame)) {
            Some(&call) => call,
            None => {
                let call = self.add_call(outside, frame)?;
                self.call_of.insert((outside, frame), call);
                call
            }
        };
        let stack = self
            .running
            .and_then(|thread| self.stack.get_mut(thread as usize));
        Ok(stack.map(|stack| stack.push(call)))
    }

    /// Ends the `count` innermost calls of the running thread. If the thread has fewer calls, the
    /// error is the number of its calls.
    pub(super) fn pop(&mut self, count: u64) -> Result<(), usize> {
        let stack = self
            .running
            .and_then(|thread| self.stack.get_mut(thread as usize));
        let Some(stack) = stack else {
            return Err(0);
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let left = stack.len().checked_sub(count).ok_or(stack.len())?;
        stack.truncate(left);
        Ok(())
    }

    fn frame(&mut self, code: u64, offset: i64) -> Result<u32, FormatError> {
        if let Some(&frame) = self.frame_of.get(&(code, offset)) {
            return Ok(frame);
        }
        let frame = self.add_frame(code, offset)?;
        self.frame_of.insert((code, offset), frame);
        Ok(frame)
    }

    fn add_frame(&mut self, code: u64, offset: i64) -> Result<u32, FormatError> {
        let frame = u32::try_from(self.frame.len()).map_err(|_| overflow("frames"))?;
        self.frame.push((code, offset));
        Ok(frame)
    }

    fn add_call(&mut self, outside: u32, frame: u32) -> Result<u32, FormatError> {
        self.call.push((outside, frame));
        u32::try_from(self.call.len()).map_err(|_| overflow("calls"))
    }

    /// Adds a frame of an aggregated file (`memray run --aggregate`), which numbers its frames in
    /// order. Returns `None` if `number` is not the next number.
    pub(super) fn numbered_frame(
        &mut self,
        number: u64,
        code: u64,
        offset: i64,
    ) -> Result<Option<()>, FormatError> {
        Ok((self.add_frame(code, offset)? as u64 == number).then_some(()))
    }

    /// Adds a call from a file with sums. Such a file numbers its frames and calls in order.
    /// Returns `None` if `frame` or `outside` is unknown.
    pub(super) fn numbered_call(
        &mut self,
        frame: u64,
        outside: u64,
        has_code: bool,
    ) -> Result<Option<()>, FormatError> {
        let frame = match has_code {
            true => u32::try_from(frame)
                .ok()
                .filter(|&n| (n as usize) < self.frame.len()),
            false => Some(self.frame(frame, 0)?),
        };
        let outside = self.known_call(outside);
        Ok(match (frame, outside) {
            (Some(frame), Some(outside)) => Some(self.add_call(outside, frame).map(|_| ())?),
            _ => None,
        })
    }

    /// Returns `number` if it is 0 or the number of a known call; otherwise `None`.
    pub(super) fn known_call(&self, number: u64) -> Option<u32> {
        let number = u32::try_from(number).ok()?;
        (number as usize <= self.call.len()).then_some(number)
    }

    /// Returns the number of calls.
    pub(super) fn calls(&self) -> usize {
        self.call.len()
    }

    /// Stores the description of a code object, or of a frame of an old file. Other records are
    /// ignored.
    pub(super) fn describe(&mut self, record: MemrayRecord) -> Result<(), FormatError> {
        let (id, name, file, line, table) = match record {
            MemrayRecord::Code {
                id,
                name,
                file,
                first_line,
                lines,
            } => (id, name, file, first_line, lines),
            MemrayRecord::Frame {
                id,
                name,
                file,
                line,
            } => (id, name, file, line, Vec::new()),
            _ => return Ok(()),
        };
        let number = u32::try_from(self.code.len()).map_err(|_| overflow("functions"))?;
        let mut text = |text: &[u8]| {
            let number = self.texts.intern(&String::from_utf8_lossy(text));
            number.ok_or_else(|| overflow("names"))
        };
        let (name, file) = (text(&name)?, text(&file)?);
        let start = self.table.len();
        self.table.extend(table);
        self.code.push(MemrayCode {
            name,
            file,
            line,
            lines: (start, self.table.len()),
        });
        // If several have the same number, memray uses the last one.
        self.code_of.insert(id, number);
        Ok(())
    }

    /// Makes a location for each frame.
    pub(super) fn locations(
        &self,
        tally: &mut SampleTally,
        header: &MemrayHeader,
    ) -> Result<Vec<LocationIndex>, FormatError> {
        let mut order: Vec<u32> = (0..self.frame.len() as u32).collect();
        order.sort_unstable_by_key(|&frame| self.frame[frame as usize]);
        let unknown = tally.named_location("(unknown function)")?;
        let mut locations = vec![unknown; self.frame.len()];
        // The frames of a function are found in one walk through its table.
        for frames in order.chunk_by(|&a, &b| self.frame[a as usize].0 == self.frame[b as usize].0)
        {
            let offsets: Vec<i64> = frames
                .iter()
                .map(|&frame| self.frame[frame as usize].1)
                .collect();
            let id = self.frame[frames[0] as usize].0;
            let code = self
                .code_of
                .get(&id)
                .and_then(|&code| self.code.get(code as usize));
            let Some(code) = code else {
                continue;
            };
            let text = |number| self.texts.get(number).unwrap_or("");
            let (name, file) = (text(code.name), text(code.file));
            let (start, end) = code.lines;
            let lines = match header.has_code() {
                true => {
                    line_table::lines(header.python, &self.table[start..end], code.line, &offsets)
                }
                false => vec![code.line; offsets.len()],
            };
            for (&frame, line) in frames.iter().zip(lines) {
                let described = TextFrame {
                    name,
                    file,
                    line,
                    ..TextFrame::default()
                };
                if !name.is_empty() {
                    locations[frame as usize] = tally.location(&[described])?;
                }
            }
        }
        Ok(locations)
    }

    /// Returns the frames of a call and of its callers, innermost first.
    pub(super) fn frames(&self, call: u32) -> impl Iterator<Item = u32> {
        let at = |call: u32| Some(*self.call.get((call as usize).checked_sub(1)?)?);
        // The call outside has a smaller number, so this iteration ends.
        std::iter::successors(at(call), move |&(outside, _)| at(outside)).map(|(_, frame)| frame)
    }
}
