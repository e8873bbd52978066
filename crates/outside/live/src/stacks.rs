//! Reads stacks and interpreter frames by their numbers.

use heapprof_abi::{FrameNumber, MappingGeneration, StackNumber, frame, stack};
use heapprof_memory::Memory;
use heapprof_profile::recording::RecordedFrame;

use crate::bounded_reads::{BoundedMemoryReader, u16_at, u32_at};
use crate::error::LiveError;
use crate::ledger::LiveLedger;

/// Maximum length of a name in bytes. A ledger with a longer name is damaged.
const MAX_NAME_LEN: u32 = 64 << 10;
/// Maximum number of interpreter frames; no program has more.
const MAX_SCRIPT_FRAMES: u32 = 1 << 24;

/// A reader of stacks, which knows the address of each stack.
pub(crate) struct LiveStackReader<'r, M> {
    reader: &'r BoundedMemoryReader<M>,
    /// The address of each stack; 0 if it does not exist yet.
    place: Vec<u64>,
}

impl<'r, M: Memory> LiveStackReader<'r, M> {
    /// Reads the addresses of the first `len` stacks.
    pub(crate) fn new(
        reader: &'r BoundedMemoryReader<M>,
        ledger: &LiveLedger,
        len: usize,
    ) -> Result<Self, LiveError> {
        let place = read_addresses(reader, ledger.stack, len)?;
        Ok(Self { reader, place })
    }

    /// Replaces `frames` by a stack's own frames, newest first. These are the frames that it does
    /// not share with its base stack.
    pub(crate) fn read_own(
        &self,
        number: StackNumber,
        frames: &mut Vec<u64>,
    ) -> Result<(), LiveError> {
        frames.clear();
        let at = self.address(number);
        let mut head = [0; stack::LEN];
        self.reader.read_cached(at, &mut head)?;
        let (all, shared) = (
            u16_at(&head, stack::FRAMES),
            u16_at(&head, stack::FROM_BASE),
        );
        self.add_frames(at, 0, all.saturating_sub(shared).into(), frames)
    }

    /// Returns the address of a stack; 0 if there is no such stack.
    fn address(&self, number: StackNumber) -> u64 {
        self.place.get(number.to_index()).copied().unwrap_or(0)
    }

    /// Appends `count` frames of the stack at `at` to `frames`. Skips the first `without` frames of
    /// the stack.
    fn add_frames(
        &self,
        at: u64,
        without: usize,
        count: usize,
        frames: &mut Vec<u64>,
    ) -> Result<(), LiveError> {
        let mut bytes = vec![0; count * 8];
        let first = at.wrapping_add((stack::LEN + without * 8) as u64);
        self.reader.read_cached(first, &mut bytes)?;
        let words = bytes.as_chunks::<8>().0.iter();
        frames.extend(words.map(|word| u64::from_ne_bytes(*word)));
        Ok(())
    }

    /// Returns the reason why a stack ends at its oldest frame, as one of
    /// [`heapprof_abi::stack_end`].
    pub(crate) fn end(&self, number: StackNumber) -> Result<u32, LiveError> {
        let at = self.address(number);
        let mut head = [0; stack::LEN];
        self.reader.read_cached(at, &mut head)?;
        Ok(u32_at(&head, stack::END))
    }

    /// Replaces `frames` by a stack's frames, newest first. Returns the generation of mappings for
    /// the stack's addresses.
    pub(crate) fn read(
        &self,
        number: StackNumber,
        frames: &mut Vec<u64>,
    ) -> Result<MappingGeneration, LiveError> {
        frames.clear();
        let (mut number, mut wanted, mut of_whole) = (number, usize::MAX, None);
        loop {
            let at = self.address(number);
            let mut head = [0; stack::LEN];
            self.reader.read_cached(at, &mut head)?;
            let all = usize::from(u16_at(&head, stack::FRAMES));
            let from_base = usize::from(u16_at(&head, stack::FROM_BASE));
            let generation = *of_whole.get_or_insert(u32_at(&head, stack::GENERATION));
            // The newest frames of a base may not be part of the stack that is built on it.
            let newer = all.saturating_sub(wanted);
            let count = all
                .checked_sub(from_base)
                .and_then(|own| own.checked_sub(newer));
            // The count is 0 for a stack that is the oldest part of an earlier one.
            let Some(count) = count else {
                return Err(LiveError::LedgerDamaged(
                    "a stack has fewer frames than it shares",
                ));
            };
            self.add_frames(at, newer, count, frames)?;
            wanted = from_base;
            if wanted == 0 {
                return Ok(MappingGeneration::from_u32(generation));
            }
            let base = StackNumber::from_u32(u32_at(&head, stack::BASE));
            if base >= number {
                return Err(LiveError::LedgerDamaged(
                    "a stack is built on one that came after it",
                ));
            }
            number = base;
        }
    }
}

/// A reader of interpreter frames, which knows the address of each frame.
pub(crate) struct LiveScriptFrameReader<'r, M> {
    reader: &'r BoundedMemoryReader<M>,
    place: Vec<u64>,
}

impl<'r, M: Memory> LiveScriptFrameReader<'r, M> {
    /// Reads the addresses of all frames. Stacks must be read before, so that all of their frames
    /// are known.
    pub(crate) fn new(
        reader: &'r BoundedMemoryReader<M>,
        ledger: &LiveLedger,
    ) -> Result<Self, LiveError> {
        let len = reader.u32(ledger.frames)?;
        if len > MAX_SCRIPT_FRAMES {
            return Err(LiveError::LedgerDamaged(
                "it has more names than a program can have",
            ));
        }
        let place = read_addresses(reader, ledger.frame, len as usize)?;
        Ok(Self { reader, place })
    }

    /// Reads a frame; `None` if it does not exist.
    pub(crate) fn read(
        &self,
        number: FrameNumber,
    ) -> Result<Option<RecordedFrame<'static>>, LiveError> {
        let Some(&at) = self.place.get(number.to_index()).filter(|&&at| at != 0) else {
            return Ok(None);
        };
        let mut head = [0; frame::LEN];
        self.reader.read_cached(at, &mut head)?;
        let (name, file) = (u32_at(&head, frame::NAME), u32_at(&head, frame::FILE));
        if name > MAX_NAME_LEN || file > MAX_NAME_LEN {
            return Err(LiveError::LedgerDamaged(
                "a name is longer than a name can be",
            ));
        }
        let mut text = self
            .reader
            .text(at.wrapping_add(frame::LEN as u64), name + file)?;
        let file = text.split_off(name as usize);
        Ok(Some(RecordedFrame {
            name: text.into(),
            file: file.into(),
            start_line: u32_at(&head, frame::START_LINE),
            line: u32_at(&head, frame::LINE),
        }))
    }
}

/// Reads the first `len` addresses in an array that grows in chunks.
fn read_addresses<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    array: u64,
    len: usize,
) -> Result<Vec<u64>, LiveError> {
    let mut places = Vec::new();
    reader.elements(array, len, |i, bytes| {
        if places.len() <= i {
            places.resize(i + 1, 0);
        }
        places[i] = u64::from_ne_bytes(*bytes);
        Ok(())
    })?;
    Ok(places)
}
