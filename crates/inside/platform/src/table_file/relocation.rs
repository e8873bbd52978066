//! Replaces the memory of tables, at the same addresses. A forked child gets its own memory, and
//! the tables of a process can move into a file.

use std::sync::atomic::Ordering;

use heapprof_abi::{MAX_EXTENTS, process_state};

use crate::sys::{self, EngineFile, PAGE_SIZE};
use crate::table_file::{TableFile, TableLifetime, TablePiece, TablePieces};

/// The kind of memory that the tables of a forked child get.
#[derive(Clone, Copy)]
pub enum TableMemory<'a> {
    /// The tables are in a file.
    File(&'a EngineFile),
    /// The tables are in private memory, and may move into a file later.
    Movable,
    /// The tables are in private memory for good.
    Private,
    /// All tables are in private memory for good, including the passing tables.
    PrivateWhole,
}

impl TableFile {
    /// Replaces the file's memory by other memory at the same addresses. The new memory has the
    /// lasting tables. It has the passing tables only if `memory` is [`TableMemory::PrivateWhole`].
    /// Returns false if there is not enough memory. Then some tables may still belong to the parent
    /// process.
    ///
    /// # Safety
    /// This is a copy of the process that began the file, and has one thread. No code uses a
    /// passing table any more, unless `memory` is [`TableMemory::PrivateWhole`].
    pub unsafe fn renew(&self, memory: TableMemory<'_>) -> bool {
        // SAFETY: this is the only thread.
        let pieces = unsafe { &mut *self.pieces.get() };
        let file = match memory {
            TableMemory::File(file) => Some(file),
            _ => None,
        };
        let all = matches!(memory, TableMemory::PrivateWhole);
        let stays = |piece: &TablePiece| piece.lot == TableLifetime::Lasting || all;
        // No mapping is changed before there is memory for all of them.
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
            // SAFETY: no other code knows of these mappings yet.
            unsafe { unmap_all(&new, pieces) };
            return false;
        }
        let (count, mut kept) = (pieces.count, 0);
        end = 0;
        for (i, &memory) in new.iter().enumerate().take(count) {
            let mut piece = pieces.all[i];
            if !stays(&piece) {
                // SAFETY: no code uses the piece any more, as the caller promises.
                unsafe { sys::unmap(piece.at, piece.len) };
                continue;
            }
            // SAFETY: both are mappings of this length. The other process goes on writing behind
            // the part that this one knows of, and that part does not change.
            if !unsafe { copy_over(memory, &piece) } {
                // The kernel has no memory for its own records of the mapping. The pieces before it
                // are private by now, and the passing ones are gone.
                // SAFETY: no other code knows of the mappings that are left.
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

    /// Moves the tables from private memory into a file. Returns false if there is not enough
    /// memory. The file is then useless, because tables are missing in it.
    ///
    /// # Safety
    /// The process has one thread, which is in no event, and no signal handler interrupts it.
    pub unsafe fn move_into(&self, file: &EngineFile) -> bool {
        if self.is_locked.swap(true, Ordering::Acquire) {
            // This is a signal handler, and the interrupted thread was about to change the pieces.
            return false;
        }
        // SAFETY: this thread has locked the pieces.
        let has_moved = unsafe { self.move_pieces(&mut *self.pieces.get(), file) };
        self.unlock_pieces();
        has_moved
    }

    /// Moves `pieces`, which the caller has locked, into a file, as [`move_into`](Self::move_into)
    /// does.
    ///
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
        // SAFETY: the address is that of the last page of the last piece, if that is mapped.
        if !has_all || !unsafe { seal_mapped(file, at.add(last.len - PAGE_SIZE)) } {
            // SAFETY: no other code knows of these mappings yet.
            unsafe { unmap_all(&new, pieces) };
            return false;
        }
        for (i, (piece, memory)) in pieces.all[..pieces.count].iter().zip(new).enumerate() {
            // SAFETY: both are mappings of this length, and no thread writes meanwhile, as the
            // caller promises.
            if !unsafe { copy_over(memory, piece) } {
                // SAFETY: no other code knows of the mappings that are left.
                unsafe { unmap_all(&new_behind(&new, i), pieces) };
                // A fork no longer copies the pieces that have moved.
                self.is_shared.store(i > 0, Ordering::Relaxed);
                return false;
            }
        }
        self.is_shared.store(true, Ordering::Relaxed);
        true
    }
}

/// Seals a file, so that no other process can write to it. `page` is the last mapped page of the
/// file. Returns false if the file can't be sealed, or if no more of it can be mapped behind the
/// page.
///
/// # Safety
/// The page is mapped from the file.
pub(super) unsafe fn seal_mapped(file: &EngineFile, page: *const u8) -> bool {
    let behind = sys::map_behind(page, PAGE_SIZE);
    if behind.is_null() {
        return false;
    }
    // SAFETY: no other code knows of the mapping yet.
    unsafe { sys::unmap(behind, PAGE_SIZE) };
    file.seal()
}

/// Returns the new mappings that come after the mapping that could not be moved. `failed` is the
/// index of that mapping.
fn new_behind(new: &[*mut u8; MAX_EXTENTS], failed: usize) -> [*mut u8; MAX_EXTENTS] {
    let mut behind = *new;
    behind[..=failed].fill(std::ptr::null_mut());
    behind
}

/// Unmaps new mappings, each of which is as long as its piece.
///
/// # Safety
/// No other code knows of the mappings yet.
unsafe fn unmap_all(new: &[*mut u8], pieces: &TablePieces) {
    for (new, piece) in new.iter().zip(&pieces.all) {
        if !new.is_null() {
            // SAFETY: the caller's promise.
            unsafe { sys::unmap(*new, piece.len) };
        }
    }
}

/// Copies the used part of a piece, and moves the copy to the piece's address. Returns false if the
/// copy can't be moved.
///
/// # Safety
/// `new` is a zeroed mapping that is as long as the piece, and no other code knows of it.
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

/// Copies a page, unless it is all zeros. A page to which nothing is written takes no memory.
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
