//! Reads which pages of a process are present, and whether only this process has them, from
//! `/proc/PID/pagemap`.
//!
//! The kernel's `Documentation/admin-guide/mm/pagemap.rst` describes the bits. Everything is
//! counted in pages of 4 KiB. A huge page counts as the small pages in it, because a process that
//! writes to a shared huge page gets a copy of only one small page. (Huge pages of `hugetlbfs` are
//! copied as a whole. Each of their small pages then counts as the process's own.)

mod scan;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Size of a page in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// Maximum number of pages that are read at a time.
const MAX_PAGES_PER_READ: u64 = 1 << 14;

/// The kernel's entry of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagemapEntry(u64);

impl PagemapEntry {
    /// Whether the page is in memory.
    #[must_use]
    pub fn is_present(self) -> bool {
        self.0 >> 63 & 1 == 1
    }

    /// Whether the page is swapped out.
    #[must_use]
    pub fn is_swapped(self) -> bool {
        self.0 >> 62 & 1 == 1
    }

    /// Whether the page belongs to a file, or is shared memory. A page of a private mapping of a
    /// file no longer belongs to the file once the process has written to it.
    #[must_use]
    pub fn is_of_file(self) -> bool {
        self.0 >> 61 & 1 == 1
    }

    /// Whether no other process has the page mapped.
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 == 1
    }

    /// Whether the page is a guard page, such as the end of a thread's stack, which no thread may
    /// access. Kernels report this since 6.15.
    #[must_use]
    pub fn is_guard(self) -> bool {
        self.0 >> 58 & 1 == 1
    }

    /// Whether the page is private: a fork shares such a page until one of the processes writes to
    /// it.
    #[must_use]
    pub fn is_private(self) -> bool {
        (self.is_present() || self.is_swapped()) && !self.is_of_file()
    }
}

/// Reads the page entries of a process. After an exec of the process, the entries of the new
/// program are not read.
#[derive(Debug)]
pub struct PageMap(File);

impl PageMap {
    /// Opens `/proc/PID/pagemap`.
    ///
    /// # Errors
    /// The process may be gone, or this user may not read it.
    pub fn open(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/pagemap")).map(Self)
    }

    /// Calls `each` with the address and the entry of each page in `range` that is in memory or
    /// swapped out, except guard pages.
    ///
    /// # Errors
    /// The process may have ended.
    pub fn each(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(u64, PagemapEntry),
    ) -> io::Result<()> {
        let mut next = range.start / PAGE_SIZE;
        let end = range.end.div_ceil(PAGE_SIZE);
        let mut words = Vec::new();
        while next < end {
            let count = (end - next).min(MAX_PAGES_PER_READ);
            words.resize(count as usize * 8, 0);
            let read = self.0.read_at(&mut words, next * 8)?;
            let known = words[..read].as_chunks::<8>().0;
            if known.is_empty() {
                // No further pages can be mapped there.
                return Ok(());
            }
            for (i, word) in (0..).zip(known) {
                let page = PagemapEntry(u64::from_ne_bytes(*word));
                if (page.is_present() || page.is_swapped()) && !page.is_guard() {
                    each((next + i) * PAGE_SIZE, page);
                }
            }
            next += known.len() as u64;
        }
        Ok(())
    }
}

impl PageMap {
    /// Calls `each` with each run of pages in `range` that are in memory or swapped out, in order.
    /// Adjacent runs may be reported separately. Since kernel 6.7 missing pages cost no time.
    ///
    /// # Errors
    /// The process may have ended.
    pub fn each_run(&self, range: Range<u64>, mut each: impl FnMut(Range<u64>)) -> io::Result<()> {
        let mut next = range.start;
        while next < range.end {
            match scan::each_present_run(&self.0, next..range.end, &mut each) {
                Ok(end) if end > next => next = end,
                Ok(_) => break,
                Err(error) if scan::is_unknown(&error) => {
                    return self.each(next..range.end, |at, _| each(at..at + PAGE_SIZE));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A set of pages. It takes 32 KiB for the pages of a gigabyte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSet {
    /// One bit for each page, by the page's number, in pieces of 4096 pages.
    pieces: BTreeMap<u64, Box<[u64; 64]>>,
    len: u64,
}

impl PageSet {
    /// Adds the page that contains an address.
    pub fn insert(&mut self, address: u64) {
        let (piece, word, bit) = bit_position(address);
        let piece = self
            .pieces
            .entry(piece)
            .or_insert_with(|| Box::new([0; 64]));
        self.len += u64::from(piece[word] & bit == 0);
        piece[word] |= bit;
    }

    /// Whether the page of an address is in the set.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        let (piece, word, bit) = bit_position(address);
        let piece = self.pieces.get(&piece);
        piece.is_some_and(|piece| piece[word] & bit != 0)
    }

    /// Returns the number of bytes in `range` that are on pages of the set.
    #[must_use]
    pub fn bytes_in(&self, range: Range<u64>) -> u64 {
        let (mut at, mut bytes) = (range.start, 0);
        while at < range.end {
            let end = (at / PAGE_SIZE * PAGE_SIZE + PAGE_SIZE).min(range.end);
            if self.contains(at) {
                bytes += end - at;
            }
            at = end;
        }
        bytes
    }

    /// Returns the number of pages in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the addresses of all pages in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.pieces.iter().flat_map(|(piece, words)| {
            let bits = (0..64u64 * 64).filter(|i| words[(i / 64) as usize] >> (i % 64) & 1 == 1);
            bits.map(move |i| (piece * 4096 + i) * PAGE_SIZE)
        })
    }
}

/// Returns the position of an address's page in the set: the number of the piece, the index of the
/// word in the piece, and the bit in the word.
fn bit_position(address: u64) -> (u64, usize, u64) {
    let page = address / PAGE_SIZE;
    (page >> 12, (page >> 6 & 63) as usize, 1 << (page & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_page_by_page() {
        let mut set = PageSet::default();
        for page in [1, 2, 4, 4, 1 << 20] {
            set.insert(page * PAGE_SIZE + 17);
        }
        assert_eq!(set.len(), 4);
        let pages: Vec<u64> = set.iter().map(|at| at / PAGE_SIZE).collect();
        assert_eq!(pages, [1, 2, 4, 1 << 20]);
        for (range, bytes) in [
            (0..PAGE_SIZE, 0),
            (PAGE_SIZE - 10..PAGE_SIZE + 10, 10),
            (2 * PAGE_SIZE + 5..5 * PAGE_SIZE + 5, 2 * PAGE_SIZE - 5),
            (3 * PAGE_SIZE..4 * PAGE_SIZE, 0),
            (7..7, 0),
        ] {
            assert_eq!(set.bytes_in(range.clone()), bytes, "{range:?}");
        }
    }

    /// Tests that pages that were written are the process's own, and that untouched pages are
    /// missing.
    #[test]
    fn pages_that_were_written_are_there() {
        const COUNT: usize = 64;
        let mut room = vec![0u8; (COUNT + 2) * PAGE_SIZE as usize];
        let first = (room.as_ptr() as u64).next_multiple_of(PAGE_SIZE);
        let offset = (first - room.as_ptr() as u64) as usize;
        let written: Vec<usize> = (0..10).map(|i| i * 6).collect();
        for &page in &written {
            room[offset + page * PAGE_SIZE as usize] = 1;
        }
        let map = PageMap::open(std::process::id()).unwrap();
        let mut found = Vec::new();
        map.each(first..first + COUNT as u64 * PAGE_SIZE, |at, page| {
            if page.is_private() && page.is_exclusive() {
                found.push(((at - first) / PAGE_SIZE) as usize);
            }
        })
        .unwrap();
        for page in written {
            assert!(found.contains(&page), "{page} of {found:?}");
        }
        assert!(PageMap::open(0).is_err());
    }
}
