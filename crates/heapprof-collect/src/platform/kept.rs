//! Tables that outlive the process: a file in memory that whoever records has, too.
//!
//! The file begins with a [`Header`]. Behind it lie two lots of tables: those that a forked child
//! gets a copy of, and those that it begins without. Numbers and lists of chunks of the engine's
//! own stay where they are, in private memory, and each change of one that a reader needs is copied
//! into the header. So the way of an allocation is the same with and without a file.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use heapprof_books::{Kept as Header, VALUES, state};

use crate::platform::pages::Lot;
use crate::platform::sys::{self, File, PAGE};

/// How long the file is. It has memory only where something was written.
pub(crate) const LEN: usize = 1 << 30;
/// Where its lots begin.
const LASTING: usize = size_of::<Header>().next_multiple_of(PAGE);
const PASSING: usize = 256 << 20;

/// How many numbers and lists are copied.
pub(crate) const COPIES: usize = 19;

/// The file of a process, as far as it has one.
pub(crate) struct Kept {
    /// Where it begins; null if there is none.
    base: AtomicPtr<u8>,
    /// Up to where its lots are taken.
    lasting: AtomicUsize,
    passing: AtomicUsize,
    /// Whether what is mapped there is a file that another process may have mapped, too: the one
    /// that this process was forked from, until it has a file of its own.
    is_shared: AtomicU32,
    copies: [Copied; COPIES],
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
        Self {
            base: AtomicPtr::new(std::ptr::null_mut()),
            lasting: AtomicUsize::new(LASTING),
            passing: AtomicUsize::new(PASSING),
            is_shared: AtomicU32::new(0),
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
        self.is_shared.load(Ordering::Relaxed) != 0
    }

    /// Begins to keep tables in a file of [`LEN`] bytes. Returns false if it can't be mapped. It is
    /// called once, before there is any table.
    pub(crate) fn begin(&self, file: &File) -> bool {
        let base = sys::map_file(file, LEN);
        if base.is_null() {
            return false;
        }
        self.is_shared.store(1, Ordering::Relaxed);
        self.base.store(base, Ordering::Release);
        true
    }

    /// The header.
    pub(crate) fn header(&self) -> *mut Header {
        self.base.load(Ordering::Acquire).cast()
    }

    /// Whether something lies in the file.
    pub(crate) fn holds(&self, at: *const u8) -> bool {
        let base = self.base.load(Ordering::Relaxed).addr();
        base != 0 && at.addr().wrapping_sub(base) < LEN
    }

    /// Zeroed memory of the file; `None` if tables of this lot are not kept there. What does not
    /// fit is in private memory, and the header says so.
    pub(crate) fn take(&self, len: usize, lot: Lot) -> Option<*mut u8> {
        let base = self.base.load(Ordering::Acquire);
        let (taken, end) = match lot {
            Lot::Lasting => (&self.lasting, PASSING),
            Lot::Passing => (&self.passing, LEN),
            Lot::Own => return None,
        };
        if base.is_null() {
            return None;
        }
        let take = |taken: usize| {
            let next = taken.checked_add(len.checked_next_multiple_of(PAGE)?)?;
            (next <= end).then_some(next)
        };
        match taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            // SAFETY: what was taken is inside the file.
            Ok(taken) => Some(unsafe { base.add(taken) }),
            Err(_) => {
                self.set_state(|header| header.is_full.store(1, Ordering::Relaxed));
                None
            }
        }
    }

    /// Has `what` change the atomic fields of the header, if there is one.
    pub(crate) fn set_state(&self, what: impl FnOnce(&Header)) {
        // SAFETY: null, or the header, of which only the atomic fields change once it is written.
        if let Some(header) = unsafe { self.header().as_ref() } {
            what(header);
        }
    }

    /// What has become of the process, as the header says it.
    pub(crate) fn state(&self) -> u32 {
        let mut found = state::GOES_ON;
        self.set_state(|header| found = header.state.load(Ordering::Relaxed));
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
        // SAFETY: `set_copies` has found room for it among the values.
        let to = unsafe {
            let values = std::mem::offset_of!(Header, values);
            let to = values + copied.to.load(Ordering::Relaxed);
            self.header().cast::<u8>().add(to)
        };
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

    /// Puts another memory into the place of the file: `file`, or a private one. It has what lies
    /// in the lasting lot, and nothing else. Returns false if there is no such memory.
    ///
    /// # Safety
    /// This is a copy of the process that began the file, and has one thread. Nobody uses what lies
    /// in the passing lot any more.
    pub(crate) unsafe fn renew(&self, file: Option<&File>) -> bool {
        let base = self.base.load(Ordering::Relaxed);
        let mapped = file.map(|file| sys::map_file(file, LEN));
        let mapped = mapped.filter(|mapped| !mapped.is_null());
        let is_shared = mapped.is_some();
        let new = mapped.unwrap_or_else(|| sys::map(LEN));
        if new.is_null() {
            return false;
        }
        let taken = self.lasting.load(Ordering::Relaxed);
        // SAFETY: both mappings are that long. The process that has the file goes on writing behind
        // what this one knows of, and what this one knows of does not change.
        let moved = unsafe {
            (0..taken)
                .step_by(PAGE)
                .for_each(|at| copy_page(base.add(at), new.add(at)));
            sys::move_over(new, base, LEN)
        };
        if !moved {
            // SAFETY: nobody knows of it.
            unsafe { sys::unmap(new, LEN) };
            return false;
        }
        self.passing.store(PASSING, Ordering::Relaxed);
        self.is_shared.store(is_shared.into(), Ordering::Relaxed);
        self.set_state(|header| {
            header.state.store(state::GOES_ON, Ordering::Relaxed);
            header.is_full.store(0, Ordering::Relaxed);
        });
        true
    }
}

/// Copies a page, unless it is all zeros: a page to which nothing is written takes no memory.
///
/// # Safety
/// Both are pages, and `to` is zeroed.
unsafe fn copy_page(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise. Another process may write to it, as to any shared memory.
    let words = (0..PAGE / 8).map(|i| unsafe { from.cast::<u64>().add(i).read_volatile() });
    if words.into_iter().any(|word| word != 0) {
        // SAFETY: the caller's promise.
        unsafe { to.copy_from_nonoverlapping(from, PAGE) };
    }
}

/// A word that threads share.
trait Word {
    type Value: PartialEq;
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
            to.set(from.get());
            // Whoever changed the word meanwhile may have copied it before this did.
            fence(Ordering::SeqCst);
            if from.get() == value {
                break;
            }
        }
    }
}

#[cfg(all(test, not(any(miri, shuttle))))]
mod tests {
    use super::*;

    /// What lasts is in the child's file, what passes is not, and the parent's file is not changed.
    #[test]
    fn a_copy_of_the_process_has_what_lasts() {
        let file = || sys::memory_file(LEN).unwrap();
        let (first, second) = (file(), file());
        let kept = Kept::new();
        assert_eq!(kept.take(8, Lot::Lasting), None);
        assert!(kept.begin(&first) && kept.is_shared());
        let take = |lot| kept.take(3 * PAGE, lot).unwrap().cast::<u64>();
        let (lasting, passing) = (take(Lot::Lasting), take(Lot::Passing));
        assert!(kept.holds(lasting.cast()) && kept.holds(passing.cast()));
        assert_eq!(kept.take(8, Lot::Own), None);
        // SAFETY: these are pages of the file, and nobody else uses them.
        unsafe {
            lasting.add(600).write(7);
            passing.write(8);
            assert!(kept.renew(Some(&second)) && kept.is_shared());
            assert_eq!((lasting.add(600).read(), lasting.read()), (7, 0));
            assert_eq!(passing.read(), 0);
            lasting.write(9);
            let again = sys::map_file(&first, LEN);
            let before = again.add(lasting.addr() - kept.header().addr());
            let before = before.cast::<u64>();
            assert_eq!((before.read(), before.add(600).read()), (0, 7));
            assert!(kept.renew(None) && !kept.is_shared());
            assert_eq!((lasting.read(), lasting.add(600).read()), (9, 7));
            sys::unmap(again, LEN);
        }
        assert_eq!(kept.passing.load(Ordering::Relaxed), PASSING);
        assert_eq!(kept.take(LEN, Lot::Passing), None);
        let mut is_full = 0;
        kept.set_state(|header| is_full = header.is_full.load(Ordering::Relaxed));
        assert_eq!(is_full, 1);
    }
}
