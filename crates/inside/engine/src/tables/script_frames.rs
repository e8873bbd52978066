//! The table of interpreters' frames. Each distinct frame is stored once, with a number and its
//! texts.
//!
//! In a stack, an interpreter's frame is a word that can't be an address of code, because its
//! highest bits are `10`.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heapprof_abi::{FrameNumber, FrameWord};
use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::table_file::TableLifetime;

use crate::process::EngineProcess;
use crate::tables::chunks::ChunkedArray;
use crate::tables::probe_table::ProbeTable;
use crate::tables::word_memory::WordMemory;

/// The texts and lines of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScriptFrame<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) file: &'a [u8],
    pub(crate) start_line: u32,
    pub(crate) line: u32,
}

/// The frames of interpreters in a process.
pub(crate) struct ScriptFrames {
    by_text: ProbeTable<{ rank::SCRIPT_FRAMES }>,
    pub(crate) entry: ChunkedArray<*const ScriptFrameEntry>,
    pub(crate) len: AtomicU32,
    /// Number of bytes of all texts together.
    bytes: AtomicUsize,
    memory: LockedValue<{ rank::SCRIPT_TEXTS }, WordMemory>,
}

// SAFETY: entries are written once, before their number is published.
unsafe impl Sync for ScriptFrames {}

/// The entry of a frame. Behind the entry are the frame's texts, the name first.
#[repr(C)]
pub(crate) struct ScriptFrameEntry {
    pub(crate) start_line: u32,
    pub(crate) line: u32,
    pub(crate) name: u32,
    pub(crate) file: u32,
}

const ENTRY_WORDS: usize = size_of::<ScriptFrameEntry>() / 8;

impl ScriptFrames {
    /// Creates a table without frames.
    pub(crate) const fn new() -> Self {
        Self {
            by_text: ProbeTable::new(),
            entry: ChunkedArray::new(),
            len: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            memory: LockedValue::new(WordMemory::new()),
        }
    }

    /// Returns the word for a frame, and adds the frame if it is new.
    pub(crate) fn word(&self, process: &EngineProcess, frame: ScriptFrame<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(frame.name);
        hasher.write(&[0]);
        hasher.write(frame.file);
        hasher.write_u64(u64::from(frame.start_line) << 32 | u64::from(frame.line));
        let key = hasher.finish().max(2);
        let found = self.by_text.find(key);
        let number = found.or_else(|| self.add(process, key, frame));
        FrameWord::Frame(number.map(|number| FrameNumber::from_u32(number as u32))).to_word()
    }

    #[cold]
    fn add(&self, process: &EngineProcess, key: u64, frame: ScriptFrame<'_>) -> Option<u64> {
        self.by_text.find_or_insert(process, key, || {
            let number = self.len.load(Ordering::Relaxed);
            let place = self
                .entry
                .touch(number as usize, &process.pages, TableLifetime::Lasting);
            if place.is_null() || number == u32::MAX {
                return None;
            }
            let bytes = frame.name.len() + frame.file.len();
            let words = ENTRY_WORDS + bytes.div_ceil(8);
            let take = |memory: &mut WordMemory| memory.take(words, &process.pages);
            let at = self.memory.with(process, take)?;
            // SAFETY: `at` has room for the entry and both texts; `place` is mapped, and no thread
            // reads it yet.
            unsafe {
                at.cast::<ScriptFrameEntry>().write(ScriptFrameEntry {
                    start_line: frame.start_line,
                    line: frame.line,
                    name: u32::try_from(frame.name.len()).ok()?,
                    file: u32::try_from(frame.file.len()).ok()?,
                });
                let text = at.add(ENTRY_WORDS).cast::<u8>();
                text.copy_from_nonoverlapping(frame.name.as_ptr(), frame.name.len());
                text.add(frame.name.len())
                    .copy_from_nonoverlapping(frame.file.as_ptr(), frame.file.len());
                *place = at.cast_const().cast();
            }
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.len.store(number + 1, Ordering::Release);
            process.pages.copy(&self.len);
            Some(u64::from(number))
        })
    }

    /// Returns the frame with a number.
    pub(crate) fn get(&self, number: FrameNumber) -> Option<ScriptFrame<'_>> {
        if number.to_u32() >= self.len() {
            return None;
        }
        // SAFETY: numbers below `len` have a published, immutable entry, with its texts behind it.
        unsafe {
            let entry = &**self.entry.get(number.to_index());
            let text = std::ptr::from_ref(entry).add(1).cast::<u8>();
            let (name, file) = (entry.name as usize, entry.file as usize);
            Some(ScriptFrame {
                name: std::slice::from_raw_parts(text, name),
                file: std::slice::from_raw_parts(text.add(name), file),
                start_line: entry.start_line,
                line: entry.line,
            })
        }
    }

    /// Returns the number of frames.
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the number of bytes of all texts together.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of the tables are resident.
    pub(crate) fn resident(&self, process: &EngineProcess) -> usize {
        let known = self.memory.with_in_time(process, |memory| memory.extent());
        let (mapped, left, _) = known.unwrap_or((0, 0, std::ptr::null()));
        self.by_text.resident(process) + self.entry.resident(&process.pages) + mapped - left
    }

    /// Returns the locks that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 2] {
        let Self {
            by_text,
            entry: _,
            len: _,
            bytes: _,
            memory,
        } = self;
        [&by_text.lock, &memory.lock]
    }
}
