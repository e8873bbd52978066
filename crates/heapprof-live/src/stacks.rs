//! The stacks by their numbers, and the frames of interpreters by theirs.

use heapprof_books::{frame, stack};
use heapprof_memory::Memory;

use crate::books::Books;
use crate::error::Error;
use crate::read::{Reader, u16_at, u32_at};

/// A longer name is a broken one.
const LONGEST: u32 = 64 << 10;
/// More frames of interpreters are no program's.
const MOST_FRAMES: u32 = 1 << 24;

/// Where each stack is.
pub(crate) struct Stacks<'r, M> {
    reader: &'r Reader<M>,
    /// The address of each; 0 if it is not there yet.
    place: Vec<u64>,
}

impl<'r, M: Memory> Stacks<'r, M> {
    /// Reads where the first `len` stacks are.
    pub(crate) fn new(reader: &'r Reader<M>, books: &Books, len: usize) -> Result<Self, Error> {
        let place = places(reader, books.stack, len)?;
        Ok(Self { reader, place })
    }

    /// Puts those frames of a stack into `frames` that it shares with no earlier one, newest first.
    pub(crate) fn read_own(&self, number: usize, frames: &mut Vec<u64>) -> Result<(), Error> {
        frames.clear();
        let at = self.place.get(number).copied().unwrap_or(0);
        let mut head = [0; stack::LEN];
        self.reader.read_kept(at, &mut head)?;
        let (all, shared) = (
            u16_at(&head, stack::FRAMES),
            u16_at(&head, stack::FROM_BASE),
        );
        self.add_frames(at, 0, all.saturating_sub(shared).into(), frames)
    }

    /// Adds `count` frames of the stack at an address, without the first ones.
    fn add_frames(
        &self,
        at: u64,
        without: usize,
        count: usize,
        frames: &mut Vec<u64>,
    ) -> Result<(), Error> {
        let mut bytes = vec![0; count * 8];
        let first = at.wrapping_add((stack::LEN + without * 8) as u64);
        self.reader.read_kept(first, &mut bytes)?;
        let words = bytes.as_chunks::<8>().0.iter();
        frames.extend(words.map(|word| u64::from_ne_bytes(*word)));
        Ok(())
    }

    /// Why a stack has no older frame, one of [`heapprof_books::stack_end`].
    pub(crate) fn end(&self, number: usize) -> Result<u32, Error> {
        let at = self.place.get(number).copied().unwrap_or(0);
        let mut head = [0; stack::LEN];
        self.reader.read_kept(at, &mut head)?;
        Ok(u32_at(&head, stack::END))
    }

    /// Puts a stack's frames into `frames`, newest first. Returns the generation of mappings that
    /// its addresses are of.
    pub(crate) fn read(&self, number: usize, frames: &mut Vec<u64>) -> Result<u32, Error> {
        frames.clear();
        let (mut number, mut wanted, mut of_whole) = (number, usize::MAX, None);
        loop {
            let at = self.place.get(number).copied().unwrap_or(0);
            let mut head = [0; stack::LEN];
            self.reader.read_kept(at, &mut head)?;
            let all = usize::from(u16_at(&head, stack::FRAMES));
            let from_base = usize::from(u16_at(&head, stack::FROM_BASE));
            let generation = *of_whole.get_or_insert(u32_at(&head, stack::GENERATION));
            // The newest frames are not those that the stack before has of this one.
            let newer = all.saturating_sub(wanted);
            let count = all
                .checked_sub(from_base)
                .and_then(|own| own.checked_sub(newer));
            // A stack that is the oldest part of another one has no frames of its own.
            let Some(count) = count else {
                return Err(Error::Damaged("a stack has fewer frames than it shares"));
            };
            self.add_frames(at, newer, count, frames)?;
            wanted = from_base;
            if wanted == 0 {
                return Ok(generation);
            }
            let base = u32_at(&head, stack::BASE) as usize;
            if base >= number {
                return Err(Error::Damaged("a stack is built on one that came after it"));
            }
            number = base;
        }
    }
}

/// A frame of an interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: Vec<u8>,
    pub(crate) file: Vec<u8>,
    pub(crate) start_line: u32,
    pub(crate) line: u32,
}

/// Where each frame of an interpreter is.
pub(crate) struct Frames<'r, M> {
    reader: &'r Reader<M>,
    place: Vec<u64>,
}

impl<'r, M: Memory> Frames<'r, M> {
    /// Reads where all of them are. It must be called after the stacks were read.
    pub(crate) fn new(reader: &'r Reader<M>, books: &Books) -> Result<Self, Error> {
        let len = reader.u32(books.frames)?;
        if len > MOST_FRAMES {
            return Err(Error::Damaged("it has more names than a program can have"));
        }
        let place = places(reader, books.frame, len as usize)?;
        Ok(Self { reader, place })
    }

    /// Reads a frame; `None` if it is not there.
    pub(crate) fn read(&self, number: u32) -> Result<Option<Named>, Error> {
        let Some(&at) = self.place.get(number as usize).filter(|&&at| at != 0) else {
            return Ok(None);
        };
        let mut head = [0; frame::LEN];
        self.reader.read_kept(at, &mut head)?;
        let (name, file) = (u32_at(&head, frame::NAME), u32_at(&head, frame::FILE));
        if name > LONGEST || file > LONGEST {
            return Err(Error::Damaged("a name is longer than a name can be"));
        }
        let mut text = self
            .reader
            .text(at.wrapping_add(frame::LEN as u64), name + file)?;
        let file = text.split_off(name as usize);
        Ok(Some(Named {
            name: text,
            file,
            start_line: u32_at(&head, frame::START_LINE),
            line: u32_at(&head, frame::LINE),
        }))
    }
}

/// Reads the first `len` addresses of an array.
fn places<M: Memory>(reader: &Reader<M>, array: u64, len: usize) -> Result<Vec<u64>, Error> {
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
