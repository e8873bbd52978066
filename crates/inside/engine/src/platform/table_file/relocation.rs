//! How tables get another memory under the same addresses: a forked child's own, and the file into
//! which a process moves that has waited for it.

use std::sync::atomic::Ordering;

use heapprof_abi::{MAX_EXTENTS, process_state};

use crate::platform::sys::{self, EngineFile, PAGE_SIZE};
use crate::platform::table_file::{TableFile, TableLifetime, TablePiece, TablePieces};

/// Where the tables of a forked child are to be.
#[derive(Clone, Copy)]
pub(crate) enum TableMemory<'a> {
    /// In a file.
    File(&'a EngineFile),
    /// In private memory, which may become a file later.
    Movable,
    /// In private memory for good.
    Private,
    /// As [`Private`](Self::Private), with those tables that pass.
    PrivateWhole,
}

impl TableFile {
    /// Puts another memory into the place of the file. It has the tables that last, and no others
    /// unless they are asked for. Returns false if there is no such memory, or not enough of it.
    /// Then some tables are still the other process's.
    ///
    /// # Safety
    /// This is a copy of the process that began the file, and has one thread. Nobody uses a table
    /// that passes any more, unless those are asked for.
    pub(crate) unsafe fn renew(&self, memory: TableMemory<'_>) -> bool {
        // SAFETY: this is the only thread.
        let pieces = unsafe { &mut *self.pieces.get() };
        let file = match memory {
            TableMemory::File(file) => Some(file),
            _ => None,
        };
        let all = matches!(memory, TableMemory::PrivateWhole);
        let stays = |piece: &TablePiece| piece.lot == TableLifetime::Lasting || all;
        // Nothing is changed before there is memory for all of it.
        let (mut new, mut end, mut has_all) = ([std::ptr::null_mut(); MAX_EXTENTS], 0, true);
        for (new, piece) in new.iter_mut().zip(&pieces.all[..pieces.count]) {
            if stays(piece) {
                *new = match file {
                    Some(file) => sys::map_file(file, end, piece.len),
                    None => sys::map(piece.len),
                };
                has_all &= !new.is_null();
                end += piece.len;
            }
        }
        if !has_all || !file.is_none_or(EngineFile::seal) {
            // SAFETY: nobody knows of them yet.
            unsafe { unmap_all(&new, pieces) };
            return false;
        }
        let (count, mut kept) = (pieces.count, 0);
        end = 0;
        for (i, &memory) in new.iter().enumerate().take(count) {
            let mut piece = pieces.all[i];
            if !stays(&piece) {
                // SAFETY: nobody uses it any more: the caller's promise.
                unsafe { sys::unmap(piece.at, piece.len) };
                continue;
            }
            // SAFETY: both are mappings of this length. The other process goes on writing behind
            // what this one knows of, and what this one knows of does not change.
            if !unsafe { copy_over(memory, &piece) } {
                // The kernel has no memory for its own part of that. Those before are ours by now,
                // and those that passed are gone.
                // SAFETY: nobody knows of those that were to come.
                unsafe { unmap_all(&new_behind(&new, i), pieces) };
                pieces.all.copy_within(i..count, kept);
                pieces.count = kept + count - i;
                return false;
            }
            (piece.offset, end) = (end, end + piece.len);
            pieces.all[kept] = piece;
            kept += 1;
        }
        (pieces.count, pieces.end) = (kept, end);
        self.is_shared.store(file.is_some(), Ordering::Relaxed);
        self.stop_waiting();
        if matches!(memory, TableMemory::Private | TableMemory::PrivateWhole) {
            self.base.store(std::ptr::null_mut(), Ordering::Release);
            pieces.count = 0;
            return true;
        }
        self.set_state(process_state::NOT_ENDED);
        self.with_header(|header| header.is_full.store(0, Ordering::Relaxed));
        self.publish_pieces(pieces);
        true
    }

    /// Moves the tables from private memory into a file. Returns false if there is no memory for
    /// all of them. Then the file is of no use: it holds none of them, or only the first ones.
    ///
    /// # Safety
    /// The process has one thread, which is in no event, and no signal's handler comes in between.
    pub(crate) unsafe fn move_into(&self, file: &EngineFile) -> bool {
        if self.is_locked.swap(true, Ordering::Acquire) {
            // This is a signal's handler, and the thread was about to change them.
            return false;
        }
        // SAFETY: nobody else has them.
        let has_moved = unsafe { self.move_pieces(&mut *self.pieces.get(), file) };
        self.unlock_pieces();
        has_moved
    }

    /// # Safety
    /// As for [`move_into`](Self::move_into).
    unsafe fn move_pieces(&self, pieces: &mut TablePieces, file: &EngineFile) -> bool {
        let (mut new, mut has_all) = ([std::ptr::null_mut(); MAX_EXTENTS], true);
        for (new, piece) in new.iter_mut().zip(&pieces.all[..pieces.count]) {
            *new = sys::map_file(file, piece.offset, piece.len);
            has_all &= !new.is_null();
        }
        let Some((last, at)) = pieces.all[..pieces.count].iter().zip(new).last() else {
            return false;
        };
        // SAFETY: the last page of the last piece, if that is mapped.
        if !has_all || !unsafe { seal_mapped(file, at.add(last.len - PAGE_SIZE)) } {
            // SAFETY: nobody knows of them yet.
            unsafe { unmap_all(&new, pieces) };
            return false;
        }
        for (i, (piece, memory)) in pieces.all[..pieces.count].iter().zip(new).enumerate() {
            // SAFETY: both are mappings of this length, and nobody writes meanwhile: the caller's
            // promise.
            if !unsafe { copy_over(memory, piece) } {
                // SAFETY: nobody knows of those that were to come.
                unsafe { unmap_all(&new_behind(&new, i), pieces) };
                // Those that have moved are no longer copied by a fork.
                self.is_shared.store(i > 0, Ordering::Relaxed);
                return false;
            }
        }
        self.is_shared.store(true, Ordering::Relaxed);
        true
    }
}

/// Lets nobody else write to a file that is mapped, of which `page` is the last page. Returns false
/// if that can't be, or if nothing more could be mapped behind it.
///
/// # Safety
/// The page is mapped from the file.
pub(super) unsafe fn seal_mapped(file: &EngineFile, page: *const u8) -> bool {
    let behind = sys::map_behind(page, PAGE_SIZE);
    if behind.is_null() {
        return false;
    }
    // SAFETY: nobody knows of it yet.
    unsafe { sys::unmap(behind, PAGE_SIZE) };
    file.seal()
}

/// The new mappings behind one that could not be moved, and which is gone.
fn new_behind(new: &[*mut u8; MAX_EXTENTS], failed: usize) -> [*mut u8; MAX_EXTENTS] {
    let mut behind = *new;
    behind[..=failed].fill(std::ptr::null_mut());
    behind
}

/// Gives new mappings back, each of which is as long as its piece.
///
/// # Safety
/// Nobody knows of them yet.
unsafe fn unmap_all(new: &[*mut u8], pieces: &TablePieces) {
    for (new, piece) in new.iter().zip(&pieces.all) {
        if !new.is_null() {
            // SAFETY: the caller's promise.
            unsafe { sys::unmap(*new, piece.len) };
        }
    }
}

/// Copies what is taken of a piece, and moves the copy to its place. Returns false if that can't
/// be.
///
/// # Safety
/// `new` is a zeroed mapping that is as long as the piece, and of which nobody knows.
unsafe fn copy_over(new: *mut u8, piece: &TablePiece) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let pages = (0..piece.taken).step_by(PAGE_SIZE);
        pages.for_each(|at| copy_page(piece.at.add(at), new.add(at)));
        let has_moved = sys::move_over(new, piece.at, piece.len);
        if !has_moved {
            sys::unmap(new, piece.len);
        }
        has_moved
    }
}

/// Copies a page, unless it is all zeros: a page to which nothing is written takes no memory.
///
/// # Safety
/// Both are pages, and `to` is zeroed.
unsafe fn copy_page(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise. Another process may write to it, as to any shared memory.
    let words = (0..PAGE_SIZE / 8).map(|i| unsafe { from.cast::<u64>().add(i).read_volatile() });
    if words.into_iter().any(|word| word != 0) {
        // SAFETY: the caller's promise.
        unsafe { to.copy_from_nonoverlapping(from, PAGE_SIZE) };
    }
}
