//! Tables that outlive the process. They are in a file in memory, which the ledger keeper has open,
//! too.
//!
//! The file begins with a [`Header`]. It is mapped piece by piece, as tables are made. A forked
//! child gets a copy of the lasting tables, and begins without the passing ones
//! ([`TableLifetime`]). The engine's numbers and lists of chunks stay in private memory. Those that
//! a reader needs are copied into the header whenever they change. So an allocation takes the same
//! path with and without a file.

use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use heapprof_abi::{
    LedgerExtent, MAX_EXTENTS, SHARED_VALUE_COUNT, SharedLedgerHeader as Header, process_state,
};

use crate::sys::{self, EngineFile, PAGE_SIZE};

mod relocation;

pub use relocation::TableMemory;

/// The purpose of a table, which decides where its memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLifetime {
    /// The table is only for the process itself. No reader needs it, so it is always in private
    /// memory.
    Own,
    /// The table is for the process and its readers, and its data never change once they are
    /// written. A forked child gets a copy.
    Lasting,
    /// The table is for the process and its readers, and has the sums that threads count. A forked
    /// child begins without these sums.
    Passing,
}

/// Length of the file in bytes. It has memory only where something was written.
pub const TABLE_FILE_LEN: usize = 16 << 30;
/// Smallest size of a piece in bytes. A new piece is about a quarter as large as the file so far,
/// but between this size and [`MAX_PIECE_LEN`]. It is larger if a table needs more.
const MIN_PIECE_LEN: usize = 256 << 10;
/// Largest size of a piece in bytes, unless a table needs more.
const MAX_PIECE_LEN: usize = 256 << 20;

/// Value of [`TableFile::file_due`] if the tables do not wait for a file. No process allocates this
/// number of bytes.
const NEVER_DUE: u64 = u64::MAX;

/// Number of values (numbers and lists) that are copied into the header.
pub const COPY_COUNT: usize = 19;

/// Index, in the header, of the copy of the process's sums. The copy is written often.
pub const HEAP_COPY: usize = 6;
/// Index, in the header, of the copy of the counts of dropped events. The copy is written often.
pub const DROPPED_COPY: usize = 7;
/// Index, in the header, of the copy of the heap's history. The copy is written often.
pub const MOMENTS_COPY: usize = 15;
/// Index, in the header, of the copy of the time when the heap was largest. The copy is written
/// often.
pub const PEAK_AT_COPY: usize = 16;

/// The tables that outlive their process. They are in a file, or in private memory that may be
/// moved into a file later.
pub struct TableFile {
    /// Address of the header; null if there is neither a file nor private memory in its place.
    base: AtomicPtr<u8>,
    /// Whether the pieces are mapped from a file. If so, another process may have mapped the same
    /// file: a forked child has its parent's file until it gets its own. Otherwise the pieces are
    /// private memory.
    is_shared: AtomicBool,
    /// Number of allocated bytes at which the tables move from private memory into a file;
    /// [`NEVER_DUE`] if they are not to move.
    file_due: AtomicU64,
    pieces: UnsafeCell<TablePieces>,
    /// Whether a thread uses `pieces`. Such a thread takes no lock and waits for nothing.
    is_locked: AtomicBool,
    copies: [CopiedValue; COPY_COUNT],
}

// SAFETY: the pieces are reached only by the thread that has locked them, or by the one thread of a
// forked child.
unsafe impl Sync for TableFile {}
// SAFETY: as for `Sync`.
unsafe impl Send for TableFile {}

/// The mapped pieces of the file.
struct TablePieces {
    all: [TablePiece; MAX_EXTENTS],
    count: usize,
    /// Offset in the file at which the next piece begins.
    end: usize,
}

/// A piece of the file, of which `taken` bytes are in use.
#[derive(Clone, Copy)]
struct TablePiece {
    at: *mut u8,
    offset: usize,
    len: usize,
    taken: usize,
    lot: TableLifetime,
}

/// A value of the engine that is copied into the header.
struct CopiedValue {
    from: AtomicUsize,
    len: AtomicUsize,
    /// Offset of the copy in the header's values, in bytes.
    to: AtomicUsize,
}

impl TableFile {
    /// Makes the state of a process whose tables are not kept in a file.
    pub const fn new() -> Self {
        const NONE: TablePiece = TablePiece {
            at: std::ptr::null_mut(),
            offset: 0,
            len: 0,
            taken: 0,
            lot: TableLifetime::Own,
        };
        Self {
            base: AtomicPtr::new(std::ptr::null_mut()),
            is_shared: AtomicBool::new(false),
            file_due: AtomicU64::new(NEVER_DUE),
            pieces: UnsafeCell::new(TablePieces {
                all: [NONE; MAX_EXTENTS],
                count: 0,
                end: 0,
            }),
            is_locked: AtomicBool::new(false),
            copies: [const {
                CopiedValue {
                    from: AtomicUsize::new(0),
                    len: AtomicUsize::new(0),
                    to: AtomicUsize::new(0),
                }
            }; COPY_COUNT],
        }
    }

    /// Whether tables are kept in a file, or in private memory that takes the file's place.
    #[inline]
    pub fn is_there(&self) -> bool {
        !self.base.load(Ordering::Acquire).is_null()
    }

    /// Whether another process may also have the pieces mapped. If so, a copy of this process must
    /// not touch them.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Locks the pieces until [`unlock_pieces`](Self::unlock_pieces). Waits while another thread
    /// has them locked, which is at most the time that the kernel takes to copy a process that
    /// forks. Returns false if they are locked for longer, because the other thread is suspended.
    pub fn lock_pieces(&self) -> bool {
        const MAX_YIELDS: usize = 1000;
        const MAX_NAPS: usize = 40_000;
        for tried in 0..MAX_YIELDS + MAX_NAPS {
            if !self.is_locked.swap(true, Ordering::Acquire) {
                return true;
            }
            match tried < MAX_YIELDS {
                true => sys::yield_now(),
                false => sys::nap(),
            }
        }
        false
    }

    /// Unlocks the pieces that [`lock_pieces`](Self::lock_pieces) locked.
    pub fn unlock_pieces(&self) {
        self.is_locked.store(false, Ordering::Release);
    }

    /// Begins to keep tables in a file of [`TABLE_FILE_LEN`] bytes. If `file` is `None`, the tables
    /// are in private memory until [`move_into`](Self::move_into) moves them into a file. Returns
    /// false if the memory can't be mapped. This is called once, before there is any table.
    pub fn begin(&self, file: Option<&EngineFile>) -> bool {
        let head = size_of::<Header>().next_multiple_of(PAGE_SIZE);
        let len = head + MIN_PIECE_LEN;
        let at = file.map_or_else(|| sys::map(len), |file| sys::map_file(file, 0, len));
        if at.is_null() {
            return false;
        }
        // SAFETY: there is no file yet, so no other thread uses the pieces.
        let pieces = unsafe { &mut *self.pieces.get() };
        pieces.all[0] = TablePiece {
            at,
            offset: 0,
            len,
            taken: head,
            lot: TableLifetime::Lasting,
        };
        (pieces.count, pieces.end) = (1, len);
        // SAFETY: the address is that of the piece's last page.
        let seals = |file| unsafe { relocation::seal_mapped(file, at.add(len - PAGE_SIZE)) };
        if file.is_some_and(|file| !seals(file)) {
            // SAFETY: no other thread knows of the mapping yet.
            unsafe { sys::unmap(at, len) };
            return false;
        }
        self.is_shared.store(file.is_some(), Ordering::Relaxed);
        self.base.store(at, Ordering::Release);
        self.publish_pieces(pieces);
        true
    }

    /// Requests that the tables move into a file when the process has allocated `bytes` bytes.
    pub fn wait_for(&self, bytes: u64) {
        self.file_due.store(bytes, Ordering::Relaxed);
    }

    /// Withdraws the request that the tables move into a file.
    pub fn stop_waiting(&self) {
        self.wait_for(NEVER_DUE);
    }

    /// Whether the tables are in private memory and are to move into a file later.
    pub fn is_waiting(&self) -> bool {
        self.is_file_due(NEVER_DUE - 1)
    }

    /// Whether the tables are to move into a file, now that the process has allocated `allocated`
    /// bytes.
    pub fn is_file_due(&self, allocated: u64) -> bool {
        allocated >= self.file_due.load(Ordering::Relaxed)
    }

    /// Returns the address of the file's header.
    pub fn header(&self) -> *mut Header {
        self.base.load(Ordering::Acquire).cast()
    }

    /// Runs `work` with the pieces locked. Returns `None`, and does not run `work`, if another
    /// thread has had the pieces locked for too long. That thread may be suspended.
    fn with_pieces<R>(&self, work: impl FnOnce(&mut TablePieces) -> R) -> Option<R> {
        if !self.lock_pieces() {
            return None;
        }
        // SAFETY: the pieces are locked by this thread.
        let result = work(unsafe { &mut *self.pieces.get() });
        self.unlock_pieces();
        Some(result)
    }

    /// Whether the memory at `at` is in the file.
    pub fn holds(&self, at: *const u8) -> bool {
        let is_in = |piece: &TablePiece| at.addr().wrapping_sub(piece.at.addr()) < piece.len;
        self.is_there()
            && self
                .with_pieces(|pieces| pieces.all[..pieces.count].iter().any(is_in))
                // Memory that is not unmapped does no harm.
                .unwrap_or(true)
    }

    /// Takes `len` bytes of zeroed memory from the file. Returns `None` if tables of this lifetime
    /// are not kept in the file, or if the file is full. A full file is marked as such in its
    /// header. The caller then puts the table into private memory.
    pub fn take(&self, len: usize, lot: TableLifetime) -> Option<*mut u8> {
        if lot == TableLifetime::Own || !self.is_there() {
            return None;
        }
        let taken = self.with_pieces(|pieces| {
            let len = len.checked_next_multiple_of(PAGE_SIZE)?;
            if let Some(at) = pieces.take(len, lot) {
                return Some(at);
            }
            pieces.grow(len, lot, self.is_shared())?;
            self.publish_pieces(pieces);
            pieces.take(len, lot)
        });
        let taken = taken.flatten();
        if taken.is_none() {
            self.with_header(|header| header.is_full.store(1, Ordering::Relaxed));
        }
        taken
    }

    /// Writes the addresses of the pieces into the header.
    fn publish_pieces(&self, pieces: &TablePieces) {
        let header = self.header();
        for (i, piece) in pieces.all[..pieces.count].iter().enumerate() {
            let extent = LedgerExtent {
                address: piece.at.expose_provenance() as u64,
                offset: piece.offset as u64,
                len: piece.len as u64,
            };
            // SAFETY: the header has room for them, and only the thread that has locked the pieces
            // writes it.
            unsafe { (&raw mut (*header).extent[i]).write(extent) };
        }
        let count = pieces.count as u32;
        self.with_header(|header| header.extents.store(count, Ordering::Release));
    }

    /// Sets the process's state in the header.
    pub fn set_state(&self, state: u32) {
        self.with_header(|header| header.state.store(state, Ordering::Release));
    }

    /// Runs `what` with the header, if there is one. `what` may read or change the header's atomic
    /// fields.
    fn with_header(&self, what: impl FnOnce(&Header)) {
        // SAFETY: null, or the header, of which only the atomic fields change once it is written.
        if let Some(header) = unsafe { self.header().as_ref() } {
            what(header);
        }
    }

    /// Returns the process's state from the header.
    pub fn state(&self) -> u32 {
        let mut found = process_state::NOT_ENDED;
        self.with_header(|header| found = header.state.load(Ordering::Relaxed));
        found
    }

    /// Sets the values that are copied into the header from now on, each by its address and its
    /// length in bytes. Returns the addresses of the copies.
    pub fn set_copies(&self, all: [(usize, usize); COPY_COUNT]) -> [usize; COPY_COUNT] {
        let values = self.header().cast::<u8>();
        // SAFETY: the caller has a file, which begins with a header.
        let values = unsafe { values.add(std::mem::offset_of!(Header, values)) };
        let mut to = 0;
        let mut places = [0; COPY_COUNT];
        for (i, (copied, (from, len))) in self.copies.iter().zip(all).enumerate() {
            debug_assert!(to + len <= 8 * SHARED_VALUE_COUNT);
            copied.len.store(len, Ordering::Relaxed);
            copied.to.store(to, Ordering::Relaxed);
            copied.from.store(from, Ordering::Release);
            places[i] = values.expose_provenance() + to;
            to += len.next_multiple_of(8);
        }
        places
    }

    /// Copies the value at `address` into the header, if it is one of the values to copy.
    #[cold]
    pub fn copy(&self, address: usize) {
        let is_it = |copied: &&CopiedValue| copied.from.load(Ordering::Acquire) == address;
        if let Some(copied) = self.copies.iter().find(is_it) {
            self.copy_one(copied);
        }
    }

    /// Copies the words with the indexes `words` of a value. Other threads may copy them at the
    /// same time, and an older word may then remain. So this is for values that are copied again
    /// and again, or that one thread changes at a time.
    pub fn copy_words(&self, value: usize, words: std::ops::Range<usize>) {
        let copied = &self.copies[value];
        let from = copied.from.load(Ordering::Relaxed);
        if from == 0 || words.end * 8 > copied.len.load(Ordering::Relaxed) {
            return;
        }
        let from = std::ptr::with_exposed_provenance::<AtomicU64>(from);
        let to = self.copy_place(copied).cast::<AtomicU64>();
        for i in words {
            // SAFETY: both places have at least `words.end` words.
            unsafe {
                (*to.add(i)).store((*from.add(i)).load(Ordering::Relaxed), Ordering::Relaxed)
            };
        }
    }

    /// Returns the address of a value's copy.
    fn copy_place(&self, copied: &CopiedValue) -> *mut u8 {
        let values = std::mem::offset_of!(Header, values);
        let to = values + copied.to.load(Ordering::Relaxed);
        // SAFETY: `set_copies` has found room for it among the values.
        unsafe { self.header().cast::<u8>().add(to) }
    }

    /// Copies all values of [`set_copies`](Self::set_copies) into the header.
    pub fn copy_all(&self) {
        if self.is_there() {
            self.copies.iter().for_each(|copied| self.copy_one(copied));
        }
    }

    fn copy_one(&self, copied: &CopiedValue) {
        let (from, len) = (
            copied.from.load(Ordering::Relaxed),
            copied.len.load(Ordering::Relaxed),
        );
        if from == 0 {
            return;
        }
        let from = std::ptr::with_exposed_provenance::<u8>(from);
        let to = self.copy_place(copied);
        // SAFETY: the value is a static of this length, made of words that are aligned to their
        // size, and the copy is aligned to 8 bytes.
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

impl TablePieces {
    /// Takes `len` bytes of a piece that has room for them.
    fn take(&mut self, len: usize, lot: TableLifetime) -> Option<*mut u8> {
        let fits = |piece: &&mut TablePiece| piece.lot == lot && piece.len - piece.taken >= len;
        let piece = self.all[..self.count].iter_mut().find(fits)?;
        let taken = piece.taken;
        piece.taken += len;
        // SAFETY: the memory that was taken is inside the piece.
        Some(unsafe { piece.at.add(taken) })
    }

    /// Maps one more piece, for at least `len` bytes.
    fn grow(&mut self, len: usize, lot: TableLifetime, is_file: bool) -> Option<()> {
        let usual = (self.end / 4).next_power_of_two();
        let usual = len.max(usual.clamp(MIN_PIECE_LEN, MAX_PIECE_LEN));
        // If the address space is limited, only as much as needed is mapped.
        let more = self.map(usual, lot, is_file);
        more.or_else(|| self.map(len, lot, is_file))
    }

    fn map(&mut self, len: usize, lot: TableLifetime, is_file: bool) -> Option<()> {
        let last = self.all[..self.count].last()?;
        if self.count == MAX_EXTENTS || self.end + len > TABLE_FILE_LEN {
            return None;
        }
        let at = match is_file {
            // SAFETY: the address is that of the piece's last page. The piece that was mapped last
            // is the last one of the file, except in a forked child, which has no others behind it
            // either.
            true => sys::map_behind(unsafe { last.at.add(last.len - PAGE_SIZE) }, len),
            false => sys::map(len),
        };
        if at.is_null() {
            return None;
        }
        let offset = self.end;
        self.all[self.count] = TablePiece {
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

/// Copies words that other threads may change and copy at the same time. Once no thread changes the
/// words any more, the copies equal the words.
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
            // Another thread that changed the word meanwhile may have copied it before this one
            // did.
            fence(Ordering::SeqCst);
            if from.get() == value {
                break;
            }
        }
    }
}

#[cfg(all(test, not(any(miri, shuttle))))]
mod tests;
