//! The memory of a process at one moment: the memory that the process can write to, and the
//! registers of its threads.

use std::ops::Range;

use heapprof_memory::Memory;
use heapprof_process::PAGE_SIZE;
use heapprof_process::maps::{self, ProcessMapping};

/// Lowest address of a program's memory.
const MIN_ADDRESS: u64 = 4096;
/// First address after a program's memory.
const MAX_ADDRESS: u64 = 1 << 62;

/// A piece of a process's memory.
#[derive(Clone, Debug, Default)]
pub struct ImageRegion {
    /// Address of the piece's first byte.
    pub start: u64,
    /// The bytes of the piece.
    pub bytes: Vec<u8>,
    /// Path of the mapped file, or the kernel's name for the mapping; empty if there is neither.
    pub name: String,
    /// Whether the process can write to the piece. Memory that it can't write to holds no pointers
    /// to the heap.
    pub is_writable: bool,
    /// Whether other processes can write to the piece, too.
    pub is_shared: bool,
    /// Whether the piece is heapprof's own memory. A pointer in it does not show that the program
    /// can still reach a block.
    pub is_own: bool,
}

impl ImageRegion {
    /// Returns the addresses of the piece.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.bytes.len() as u64)
    }

    /// Whether pointers in the piece count as roots: the program can write there, and the memory is
    /// not heapprof's.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.is_writable && !self.is_own
    }

    /// Returns the word at an address of the piece.
    #[must_use]
    pub fn word(&self, at: u64) -> Option<u64> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(from..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }
}

/// A thread and its registers.
#[derive(Clone, Debug, Default)]
pub struct ImageThread {
    /// The kernel's number of the thread.
    pub tid: u32,
    /// The values of the thread's registers.
    pub registers: Vec<u64>,
    /// The thread's stack pointer. The memory below it is not part of the stack, except for 128
    /// bytes.
    pub stack: u64,
}

/// The memory of a process at one moment.
#[derive(Clone, Debug, Default)]
pub struct ProcessImage {
    /// The pieces, in order of their addresses.
    regions: Vec<ImageRegion>,
    /// The threads of the process.
    pub threads: Vec<ImageThread>,
    /// Mappings of files that the process can't write to (code, constants, tables of classes), in
    /// order of their addresses.
    pub files: Vec<ProcessMapping>,
    /// The address ranges of the copied mappings in order, including their pages that were never
    /// touched. Empty if the mappings are not known.
    pub mapped: Vec<Range<u64>>,
    /// The auxiliary vector, which the kernel gives a program at its start: pairs of a key and a
    /// word. Empty if it is not known.
    pub auxiliary: Vec<u8>,
    /// Number of bytes that are missing from the image: a core file may be cut off, or leave
    /// something out.
    pub missing: u64,
}

impl ProcessImage {
    /// Makes an image of pieces that do not overlap, and lie where a program's memory can be. Other
    /// pieces are left out.
    #[must_use]
    pub fn new(mut regions: Vec<ImageRegion>, threads: Vec<ImageThread>, missing: u64) -> Self {
        regions.sort_by_key(|region| region.start);
        let mut end = MIN_ADDRESS;
        regions.retain(|region| {
            let is_disjoint = region.start >= end && !region.bytes.is_empty();
            let next = region.start.checked_add(region.bytes.len() as u64);
            match next.filter(|&next| is_disjoint && next <= MAX_ADDRESS) {
                Some(next) => {
                    end = next;
                    true
                }
                None => false,
            }
        });
        Self {
            regions,
            threads,
            files: Vec::new(),
            mapped: Vec::new(),
            auxiliary: Vec::new(),
            missing,
        }
    }

    /// Returns the image without the pages that have only zeros. A core file may have pages that
    /// the program never touched, such as those of a stack.
    #[must_use]
    pub fn without_zero_pages(mut self) -> Self {
        let mut pieces: Vec<ImageRegion> = Vec::new();
        // One region at a time is there twice.
        for region in std::mem::take(&mut self.regions) {
            match runs_with_content(&region.bytes).as_slice() {
                [whole] if *whole == (0..region.bytes.len()) => pieces.push(region),
                runs => pieces.extend(runs.iter().map(|run| ImageRegion {
                    start: region.start + run.start as u64,
                    bytes: region.bytes[run.clone()].to_vec(),
                    name: region.name.clone(),
                    ..region
                })),
            }
        }
        self.regions = pieces;
        self
    }

    /// Returns all pieces, in order of their addresses.
    #[must_use]
    pub fn regions(&self) -> &[ImageRegion] {
        &self.regions
    }

    /// Returns the piece that contains an address.
    #[must_use]
    pub fn region(&self, at: u64) -> Option<&ImageRegion> {
        let next = self.regions.partition_point(|region| region.start <= at);
        let region = self.regions.get(next.checked_sub(1)?)?;
        region.range().contains(&at).then_some(region)
    }

    /// Returns the mapping that contains an address, if it is a file's mapping without write
    /// access.
    #[must_use]
    pub fn file(&self, at: u64) -> Option<&ProcessMapping> {
        let next = self.files.partition_point(|file| file.start <= at);
        let file = &self.files[next.checked_sub(1)?];
        file.range().contains(&at).then_some(file)
    }

    /// Returns the file to which an address belongs, and the distance of the address from the
    /// file's first byte. An address after the file's mappings belongs to it too, because
    /// variables without an initial value lie there.
    #[must_use]
    pub fn place(&self, at: u64) -> Option<(&ProcessMapping, u64)> {
        let next = self.files.partition_point(|file| file.start <= at);
        let first = maps::image_start(&self.files, next.checked_sub(1)?)?;
        Some((first, at - first.start))
    }

    /// Whether an address is in a mapping of a file that the process can't write to.
    #[must_use]
    pub fn is_in_file(&self, at: u64) -> bool {
        self.file(at).is_some()
    }

    /// Returns the word at an address, if the image has it.
    #[must_use]
    pub fn word(&self, at: u64) -> Option<u64> {
        self.region(at)?.word(at)
    }

    /// Returns the mapping that contains an address, if the mappings are known.
    pub(crate) fn mapping(&self, at: u64) -> Option<Range<u64>> {
        let next = self.mapped.partition_point(|one| one.end <= at);
        self.mapped
            .get(next)
            .filter(|one| one.contains(&at))
            .cloned()
    }

    /// Whether all of a range was mapped. True if the mappings are not known.
    #[must_use]
    pub fn is_mapped(&self, range: &Range<u64>) -> bool {
        let next = self.mapped.partition_point(|one| one.end <= range.start);
        let mut at = range.start;
        for one in &self.mapped[next..] {
            if one.start > at || at >= range.end {
                break;
            }
            at = at.max(one.end);
        }
        self.mapped.is_empty() || at >= range.end
    }

    /// Returns the number of bytes of a range that are in the image.
    #[must_use]
    pub fn present(&self, range: Range<u64>) -> u64 {
        let first = self
            .regions
            .partition_point(|one| one.range().end <= range.start);
        let inside = self.regions[first..].iter();
        let inside = inside.take_while(|region| region.start < range.end);
        inside
            .map(|one| one.range().end.min(range.end) - one.start.max(range.start))
            .sum()
    }

    /// Returns the bytes of a range, up to the end of the piece that contains its beginning.
    #[must_use]
    pub fn bytes(&self, range: Range<u64>) -> &[u8] {
        let Some(region) = self.region(range.start) else {
            return &[];
        };
        let from = (range.start - region.start) as usize;
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let rest = &region.bytes[from..];
        &rest[..len.min(rest.len())]
    }
}

/// Returns the runs of pages that do not have only zeros.
fn runs_with_content(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let pages = bytes.chunks(PAGE_SIZE as usize);
    for (page, at) in pages.zip((0..).step_by(PAGE_SIZE as usize)) {
        if page.iter().all(|&byte| byte == 0) {
            continue;
        }
        match runs.last_mut().filter(|run| run.end == at) {
            Some(run) => run.end = at + page.len(),
            None => runs.push(at..at + page.len()),
        }
    }
    runs
}

/// Reads the image's memory. Missing pages read as zeros, because the program has not touched them.
impl Memory for &ProcessImage {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        let Some(end) = at
            .checked_add(to.len() as u64)
            .filter(|&end| end < MAX_ADDRESS)
        else {
            return false;
        };
        to.fill(0);
        let first = self.regions.partition_point(|one| one.range().end <= at);
        for region in self.regions[first..]
            .iter()
            .take_while(|one| one.start < end)
        {
            let (from, until) = (region.start.max(at), region.range().end.min(end));
            let bytes = self.bytes(from..until);
            to[(from - at) as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        true
    }
}

/// Sorts ranges, and joins ranges that touch or overlap.
pub(crate) fn join_ranges(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
    ranges
}

/// Returns the words in `bytes`.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, len: usize) -> ImageRegion {
        ImageRegion {
            start,
            bytes: vec![7; len],
            ..ImageRegion::default()
        }
    }

    #[test]
    fn pieces_are_apart_and_in_order() {
        let pieces = vec![
            region(8040, 8),
            region(8000, 16),
            region(8008, 16),
            region(8024, 16),
            region(8060, 0),
            region(0, 8),
        ];
        let image = ProcessImage::new(pieces, Vec::new(), 0);
        let ranges: Vec<_> = image.regions().iter().map(ImageRegion::range).collect();
        assert_eq!(ranges, [8000..8016, 8024..8040, 8040..8048]);
        assert!(
            image.word(8008).is_some() && image.word(8009).is_none() && image.word(8016).is_none()
        );
        assert_eq!(
            (image.bytes(8030..9000).len(), image.bytes(8016..8020).len()),
            (10, 0)
        );
        let edge = ProcessImage::new(vec![region(u64::MAX - 3, 8)], Vec::new(), 0);
        assert!(edge.regions().is_empty());
    }

    fn image(starts: &[(u64, usize)]) -> ProcessImage {
        let pieces = starts.iter().map(|&(start, len)| region(start, len));
        ProcessImage::new(pieces.collect(), Vec::new(), 0)
    }

    #[test]
    fn pages_of_zeros_are_left_out() {
        let pages = |count: u64| count * PAGE_SIZE;
        let mut whole = region(pages(2), pages(5) as usize);
        whole.bytes[pages(1) as usize..pages(3) as usize].fill(0);
        let image = ProcessImage::new(vec![whole, region(pages(9), 8)], Vec::new(), 0);
        let image = image.without_zero_pages();
        let ranges: Vec<_> = image.regions().iter().map(ImageRegion::range).collect();
        let expected = [
            pages(2)..pages(3),
            pages(5)..pages(7),
            pages(9)..pages(9) + 8,
        ];
        assert_eq!(ranges, expected);
    }

    /// Tests that pages that a program never touched read as zeros, and that unmapped addresses
    /// can't be read.
    #[test]
    fn what_lies_between_pieces_is_zero() {
        let image = image(&[(8192, 16), (8224, 8)]);
        let mut bytes = [1; 48];
        assert!(image.read(8188, &mut bytes));
        let expected = [vec![0; 4], vec![7; 16], vec![0; 16], vec![7; 8], vec![0; 4]].concat();
        assert_eq!(bytes[..], expected);
        assert!(!image.read(MAX_ADDRESS - 8, &mut bytes));
        assert!(!image.read(u64::MAX - 8, &mut bytes));
    }

    #[test]
    fn present_bytes_are_those_of_all_pieces() {
        let image = image(&[(8192, 16), (8224, 8)]);
        for (range, expected) in [
            (0..1 << 40, 24),
            (8200..8226, 10),
            (8208..8224, 0),
            (8232..9000, 0),
        ] {
            assert_eq!(image.present(range.clone()), expected, "{range:?}");
        }
    }

    #[test]
    fn a_range_is_mapped_if_mappings_cover_it() {
        let mut image = image(&[]);
        assert!(image.is_mapped(&(0..1 << 40)), "nothing is known");
        image.mapped = vec![4096..8192, 8192..12_288, 16_384..20_480];
        for (range, expected) in [
            (4096..12_288, true),
            (5000..9000, true),
            (4000..5000, false),
            (12_000..16_400, false),
            (20_000..20_481, false),
            (30_000..30_001, false),
        ] {
            assert_eq!(image.is_mapped(&range), expected, "{range:?}");
        }
        assert_eq!(image.mapping(8192), Some(8192..12_288));
        assert_eq!(image.mapping(12_288), None);
    }

    /// Tests that the variables without an initial value, after a file's mappings, belong to the
    /// file.
    #[test]
    fn an_address_belongs_to_the_file_before_it() {
        let mut image = image(&[]);
        image.files = heapprof_process::maps::parse(
            b"1000-2000 r--p 00000000 00:01 12 /one\n\
              2000-3000 r-xp 00001000 00:01 12 /one\n\
              5000-6000 r--p 00002000 00:01 13 /without-beginning\n",
        );
        let place = |at: u64| image.place(at).map(|(file, from)| (file.start, from));
        assert_eq!(place(100), None);
        assert_eq!(place(5000), Some((4096, 904)));
        assert_eq!(place(9000), Some((4096, 4904)));
        assert_eq!(place(13_000), Some((4096, 8904)));
        assert_eq!(place(21_000), None);
        assert!(image.is_in_file(12_287) && !image.is_in_file(12_288));
        assert!(!image.is_in_file(0));
    }

    #[test]
    fn ranges_that_touch_are_joined() {
        let joined = join_ranges(vec![30..40, 10..20, 20..25, 12..14, 50..60, 35..52]);
        assert_eq!(joined, [10..25, 30..60]);
        assert_eq!(join_ranges(Vec::new()), []);
    }
}
