//! Tables that outlive the process: a file in memory that whoever records has, too.
//!
//! The file begins with a [`Header`]. It is mapped piece by piece, as tables are made. Some tables
//! last, so that a forked child gets a copy of them, and some pass, so that it begins without.
//! Numbers and lists of chunks of the engine's own stay where they are, in private memory, and each
//! change of one that a reader needs is copied into the header. So the way of an allocation is the
//! same with and without a file.

use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use heapprof_books::{EXTENTS, Extent, Kept as Header, VALUES, state};

use crate::platform::sys::{self, File, PAGE};

mod relocation;

pub(crate) use relocation::TableMemory;

/// What a table is for, which says where its memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lot {
    /// The process itself. Nobody else needs it, so it is always private.
    Own,
    /// Readers, too, for as long as there are any: what never changes once it is written. A forked
    /// child gets a copy of it.
    Lasting,
    /// Readers, too, but only of this process: what threads count. A forked child begins without.
    Passing,
}

/// How long the file is. It has memory only where something was written.
pub(crate) const LEN: usize = 16 << 30;
/// A piece of it is a quarter of what there is, and within these bounds unless more is asked for.
const SMALLEST: usize = 256 << 10;
const LARGEST: usize = 256 << 20;

/// More bytes than a process allocates.
const NEVER: u64 = u64::MAX;

/// How many numbers and lists are copied.
pub(crate) const COPIES: usize = 19;

/// Which of them are copied often: the sums of the process, what was dropped, the history of the
/// heap, and when the heap was largest.
pub(crate) const HEAP: usize = 6;
pub(crate) const DROPPED: usize = 7;
pub(crate) const MOMENTS: usize = 15;
pub(crate) const PEAK_AT: usize = 16;

/// The file of a process, as far as it has one.
pub(crate) struct Kept {
    /// Where it begins; null if there is none.
    base: AtomicPtr<u8>,
    /// Whether what is mapped is a file that another process may have mapped, too: the one that
    /// this process was forked from, until it has a file of its own. Otherwise it is private
    /// memory.
    is_shared: AtomicBool,
    /// How many bytes the process is to have allocated when the tables move from private memory
    /// into a file; [`NEVER`] if they do not wait for that.
    file_due: AtomicU64,
    pieces: UnsafeCell<Pieces>,
    /// Whether somebody uses `pieces`. Nobody takes a lock meanwhile, or waits for anything.
    is_held: AtomicBool,
    copies: [Copied; COPIES],
}

// SAFETY: the pieces are reached only by whoever holds them, or by the one thread of a forked
// child.
unsafe impl Sync for Kept {}
// SAFETY: as above.
unsafe impl Send for Kept {}

/// The pieces of the file that are mapped.
struct Pieces {
    all: [Piece; EXTENTS],
    count: usize,
    /// Where the next one begins in the file.
    end: usize,
}

/// A piece of the file, of which a part is taken.
#[derive(Clone, Copy)]
struct Piece {
    at: *mut u8,
    offset: usize,
    len: usize,
    taken: usize,
    lot: Lot,
}

/// What is copied from the engine into the header.
struct Copied {
    from: AtomicUsize,
    len: AtomicUsize,
    /// Where its copy begins, in bytes behind the first value.
    to: AtomicUsize,
}

impl Kept {
    /// No file.
    pub(crate) const fn new() -> Self {
        const NONE: Piece = Piece {
            at: std::ptr::null_mut(),
            offset: 0,
            len: 0,
            taken: 0,
            lot: Lot::Own,
        };
        Self {
            base: AtomicPtr::new(std::ptr::null_mut()),
            is_shared: AtomicBool::new(false),
            file_due: AtomicU64::new(NEVER),
            pieces: UnsafeCell::new(Pieces {
                all: [NONE; EXTENTS],
                count: 0,
                end: 0,
            }),
            is_held: AtomicBool::new(false),
            copies: [const {
                Copied {
                    from: AtomicUsize::new(0),
                    len: AtomicUsize::new(0),
                    to: AtomicUsize::new(0),
                }
            }; COPIES],
        }
    }

    /// Whether there is one.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        !self.base.load(Ordering::Acquire).is_null()
    }

    /// Whether another process may have it mapped, too, so that a copy of this process must not
    /// touch it.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Keeps everybody from the pieces until [`let_go`](Self::let_go). A thread that forks holds
    /// them for as long as the kernel takes to copy the process. Returns false if somebody has them
    /// for longer than that: they are held up.
    pub(crate) fn hold(&self) -> bool {
        const YIELDS: usize = 1000;
        const NAPS: usize = 40_000;
        for tried in 0..YIELDS + NAPS {
            if !self.is_held.swap(true, Ordering::Acquire) {
                return true;
            }
            match tried < YIELDS {
                true => sys::yield_now(),
                false => sys::nap(),
            }
        }
        false
    }

    /// Ends what [`hold`](Self::hold) began.
    pub(crate) fn let_go(&self) {
        self.is_held.store(false, Ordering::Release);
    }

    /// Begins to keep tables in a file of [`LEN`] bytes, or in private memory that may become such
    /// a file later ([`move_into`](Self::move_into)). Returns false if it can't be mapped. It is
    /// called once, before there is any table.
    pub(crate) fn begin(&self, file: Option<&File>) -> bool {
        let head = size_of::<Header>().next_multiple_of(PAGE);
        let len = head + SMALLEST;
        let at = file.map_or_else(|| sys::map(len), |file| sys::map_file(file, 0, len));
        if at.is_null() {
            return false;
        }
        // SAFETY: there is no file yet, so nobody else is here.
        let pieces = unsafe { &mut *self.pieces.get() };
        pieces.all[0] = Piece {
            at,
            offset: 0,
            len,
            taken: head,
            lot: Lot::Lasting,
        };
        (pieces.count, pieces.end) = (1, len);
        // SAFETY: its last page.
        if file.is_some_and(|file| !unsafe { relocation::seal_mapped(file, at.add(len - PAGE)) }) {
            // SAFETY: nobody knows of it yet.
            unsafe { sys::unmap(at, len) };
            return false;
        }
        self.is_shared.store(file.is_some(), Ordering::Relaxed);
        self.base.store(at, Ordering::Release);
        self.show_pieces(pieces);
        true
    }

    /// Asks that the tables move into a file when the process has allocated so many bytes.
    pub(crate) fn wait_for(&self, bytes: u64) {
        self.file_due.store(bytes, Ordering::Relaxed);
    }

    /// Does not wait any longer.
    pub(crate) fn stop_waiting(&self) {
        self.wait_for(NEVER);
    }

    /// Whether the tables are in private memory, and are to move into a file later.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_file_due(NEVER - 1)
    }

    /// Whether the tables are to move now that the process has allocated so many bytes.
    pub(crate) fn is_file_due(&self, allocated: u64) -> bool {
        allocated >= self.file_due.load(Ordering::Relaxed)
    }

    /// The header.
    pub(crate) fn header(&self) -> *mut Header {
        self.base.load(Ordering::Acquire).cast()
    }

    /// Runs `work` with the pieces, unless somebody else holds them for long: they may be held up.
    fn with_pieces<R>(&self, work: impl FnOnce(&mut Pieces) -> R) -> Option<R> {
        if !self.hold() {
            return None;
        }
        // SAFETY: nobody else has them.
        let result = work(unsafe { &mut *self.pieces.get() });
        self.let_go();
        Some(result)
    }

    /// Whether something lies in the file.
    pub(crate) fn holds(&self, at: *const u8) -> bool {
        let is_in = |piece: &Piece| at.addr().wrapping_sub(piece.at.addr()) < piece.len;
        self.is_there()
            && self
                .with_pieces(|pieces| pieces.all[..pieces.count].iter().any(is_in))
                // Memory that is not given back does no harm.
                .unwrap_or(true)
    }

    /// Zeroed memory of the file; `None` if tables of this lot are not kept there. What there is no
    /// room for is in private memory, and the header says so.
    pub(crate) fn take(&self, len: usize, lot: Lot) -> Option<*mut u8> {
        if lot == Lot::Own || !self.is_there() {
            return None;
        }
        let taken = self.with_pieces(|pieces| {
            let len = len.checked_next_multiple_of(PAGE)?;
            if let Some(at) = pieces.take(len, lot) {
                return Some(at);
            }
            pieces.grow(len, lot, self.is_shared())?;
            self.show_pieces(pieces);
            pieces.take(len, lot)
        });
        let taken = taken.flatten();
        if taken.is_none() {
            self.with_header(|header| header.is_full.store(1, Ordering::Relaxed));
        }
        taken
    }

    /// Says in the header where the pieces are.
    fn show_pieces(&self, pieces: &Pieces) {
        let header = self.header();
        for (i, piece) in pieces.all[..pieces.count].iter().enumerate() {
            let extent = Extent {
                address: piece.at.expose_provenance() as u64,
                offset: piece.offset as u64,
                len: piece.len as u64,
            };
            // SAFETY: the header has room for them, and only whoever has the pieces writes it.
            unsafe { (&raw mut (*header).extent[i]).write(extent) };
        }
        let count = pieces.count as u32;
        self.with_header(|header| header.extents.store(count, Ordering::Release));
    }

    /// Says what has become of the process.
    pub(crate) fn say(&self, state: u32) {
        self.with_header(|header| header.state.store(state, Ordering::Release));
    }

    /// Has `what` read or change the atomic fields of the header, if there is one.
    fn with_header(&self, what: impl FnOnce(&Header)) {
        // SAFETY: null, or the header, of which only the atomic fields change once it is written.
        if let Some(header) = unsafe { self.header().as_ref() } {
            what(header);
        }
    }

    /// What has become of the process, as the header says it.
    pub(crate) fn state(&self) -> u32 {
        let mut found = state::GOES_ON;
        self.with_header(|header| found = header.state.load(Ordering::Relaxed));
        found
    }

    /// Says what is copied from now on: where each value is, and how many bytes it has. Returns
    /// where the copies are.
    pub(crate) fn set_copies(&self, all: [(usize, usize); COPIES]) -> [usize; COPIES] {
        let values = self.header().cast::<u8>();
        // SAFETY: the caller has a file, which begins with a header.
        let values = unsafe { values.add(std::mem::offset_of!(Header, values)) };
        let mut to = 0;
        let mut places = [0; COPIES];
        for (i, (copied, (from, len))) in self.copies.iter().zip(all).enumerate() {
            debug_assert!(to + len <= 8 * VALUES);
            copied.len.store(len, Ordering::Relaxed);
            copied.to.store(to, Ordering::Relaxed);
            copied.from.store(from, Ordering::Release);
            places[i] = values.expose_provenance() + to;
            to += len.next_multiple_of(8);
        }
        places
    }

    /// Copies what is at an address, if that is one of the copied values.
    #[cold]
    pub(crate) fn copy(&self, address: usize) {
        let is_it = |copied: &&Copied| copied.from.load(Ordering::Acquire) == address;
        if let Some(copied) = self.copies.iter().find(is_it) {
            self.copy_one(copied);
        }
    }

    /// Copies a part of a value as it is just now: so many words, from this one on. Other threads
    /// may copy it at the same time, so it is for values that are copied again and again, or that
    /// one thread changes at a time.
    pub(crate) fn copy_words(&self, value: usize, words: std::ops::Range<usize>) {
        let copied = &self.copies[value];
        let from = copied.from.load(Ordering::Relaxed);
        if from == 0 || words.end * 8 > copied.len.load(Ordering::Relaxed) {
            return;
        }
        let from = std::ptr::with_exposed_provenance::<AtomicU64>(from);
        let to = self.place_of(copied).cast::<AtomicU64>();
        for i in words {
            // SAFETY: both have so many words.
            unsafe {
                (*to.add(i)).store((*from.add(i)).load(Ordering::Relaxed), Ordering::Relaxed)
            };
        }
    }

    /// Where the copy of a value begins.
    fn place_of(&self, copied: &Copied) -> *mut u8 {
        let values = std::mem::offset_of!(Header, values);
        let to = values + copied.to.load(Ordering::Relaxed);
        // SAFETY: `set_copies` has found room for it among the values.
        unsafe { self.header().cast::<u8>().add(to) }
    }

    /// Copies all values.
    pub(crate) fn copy_all(&self) {
        if self.is_there() {
            self.copies.iter().for_each(|copied| self.copy_one(copied));
        }
    }

    fn copy_one(&self, copied: &Copied) {
        let (from, len) = (
            copied.from.load(Ordering::Relaxed),
            copied.len.load(Ordering::Relaxed),
        );
        if from == 0 {
            return;
        }
        let from = std::ptr::with_exposed_provenance::<u8>(from);
        let to = self.place_of(copied);
        // SAFETY: what is copied is a static of this length, made of words that are aligned to
        // their size, and the copy is aligned to 8 bytes.
        unsafe {
            if len < 4 {
                to.write_volatile(from.read_volatile());
            } else if len < 8 {
                copy_words(from.cast::<AtomicU32>(), to.cast(), 1);
            } else {
                copy_words(from.cast::<AtomicU64>(), to.cast(), len / 8);
            }
        }
    }
}

impl Pieces {
    /// Takes memory of a piece that has so much left.
    fn take(&mut self, len: usize, lot: Lot) -> Option<*mut u8> {
        let fits = |piece: &&mut Piece| piece.lot == lot && piece.len - piece.taken >= len;
        let piece = self.all[..self.count].iter_mut().find(fits)?;
        let taken = piece.taken;
        piece.taken += len;
        // SAFETY: what was taken is inside the piece.
        Some(unsafe { piece.at.add(taken) })
    }

    /// Maps one more piece, for at least `len` bytes.
    fn grow(&mut self, len: usize, lot: Lot, is_file: bool) -> Option<()> {
        let usual = (self.end / 4).next_power_of_two();
        let usual = len.max(usual.clamp(SMALLEST, LARGEST));
        // If the address space is limited, no more than needed.
        let more = self.map(usual, lot, is_file);
        more.or_else(|| self.map(len, lot, is_file))
    }

    fn map(&mut self, len: usize, lot: Lot, is_file: bool) -> Option<()> {
        let last = self.all[..self.count].last()?;
        if self.count == EXTENTS || self.end + len > LEN {
            return None;
        }
        let at = match is_file {
            // SAFETY: its last page. The last piece that was mapped is the last one of the file,
            // except in a forked child, which has no others behind it either.
            true => sys::map_behind(unsafe { last.at.add(last.len - PAGE) }, len),
            false => sys::map(len),
        };
        if at.is_null() {
            return None;
        }
        let offset = self.end;
        self.all[self.count] = Piece {
            at,
            offset,
            len,
            taken: 0,
            lot,
        };
        self.count += 1;
        self.end += len;
        Some(())
    }
}

/// A word that threads share.
trait Word {
    type Value: Copy + PartialEq;
    fn get(&self) -> Self::Value;
    fn set(&self, value: Self::Value);
}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word for $atomic {
            type Value = $value;
            fn get(&self) -> $value {
                self.load(Ordering::Relaxed)
            }
            fn set(&self, value: $value) {
                self.store(value, Ordering::Relaxed);
            }
        }
    };
}
word!(AtomicU32, u32);
word!(AtomicU64, u64);

/// Copies words that others may change and copy at the same time, so that the copies are what the
/// words are in the end.
///
/// # Safety
/// `count` words are at both places.
unsafe fn copy_words<W: Word>(from: *const W, to: *const W, count: usize) {
    for i in 0..count {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe { (&*from.add(i), &*to.add(i)) };
        loop {
            let value = from.get();
            to.set(value);
            // Whoever changed the word meanwhile may have copied it before this did.
            fence(Ordering::SeqCst);
            if from.get() == value {
                break;
            }
        }
    }
}

#[cfg(all(test, not(any(miri, shuttle))))]
mod tests;
