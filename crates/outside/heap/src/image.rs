//! The memory of a process at a moment: what it can write to, and its threads' registers.

use std::ops::Range;

use heapprof_memory::Memory;
use heapprof_process::maps::ProcessMapping;

/// No program has memory below, or above.
const MIN_ADDRESS: u64 = 4096;
const MAX_ADDRESS: u64 = 1 << 62;

/// A piece of memory.
#[derive(Clone, Debug, Default)]
pub struct ImageRegion {
    /// Where it begins.
    pub start: u64,
    /// What is there.
    pub bytes: Vec<u8>,
    /// The file that it is of, or the kernel's name for it; empty for memory of no file.
    pub name: String,
    /// Whether the process can write there. What it can't write holds no pointers to the heap.
    pub is_writable: bool,
    /// Whether other processes can write there, too.
    pub is_shared: bool,
    /// Whether it is heapprof's, which knows blocks that the program does not.
    pub is_own: bool,
}

impl ImageRegion {
    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.bytes.len() as u64)
    }

    /// Whether pointers in it count: the program can write there, and it is not heapprof's.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.is_writable && !self.is_own
    }

    /// The word at an address of it.
    #[must_use]
    pub fn word(&self, at: u64) -> Option<u64> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(from..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub struct ImageThread {
    /// Its number.
    pub tid: u32,
    /// What its registers hold.
    pub registers: Vec<u64>,
    /// Where its stack ends. Below is nothing of it, except for 128 bytes.
    pub stack: u64,
}

/// The memory of a process at a moment.
#[derive(Clone, Debug, Default)]
pub struct ProcessImage {
    /// In order of their addresses.
    regions: Vec<ImageRegion>,
    /// The threads.
    pub threads: Vec<ImageThread>,
    /// Where files are mapped that can't be written: code, constants, tables of classes. In order.
    pub files: Vec<ProcessMapping>,
    /// What was mapped that was copied, also where no page is there yet, one by one and in order.
    /// Empty if that is not known.
    pub mapped: Vec<Range<u64>>,
    /// What the kernel told the program of itself when it began: pairs of a key and a word. Empty
    /// if that is not known.
    pub auxiliary: Vec<u8>,
    /// Bytes that should be there and are not: a core file may be cut, or leave something out.
    pub missing: u64,
}

impl ProcessImage {
    /// Makes one of pieces that do not overlap, and are where a program's memory can be. Others are
    /// left out.
    #[must_use]
    pub fn new(mut regions: Vec<ImageRegion>, threads: Vec<ImageThread>, missing: u64) -> Self {
        regions.sort_by_key(|region| region.start);
        let mut end = MIN_ADDRESS;
        regions.retain(|region| {
            let is_apart = region.start >= end && !region.bytes.is_empty();
            let next = region.start.checked_add(region.bytes.len() as u64);
            match next.filter(|&next| is_apart && next <= MAX_ADDRESS) {
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

    /// All pieces, in order.
    #[must_use]
    pub fn regions(&self) -> &[ImageRegion] {
        &self.regions
    }

    /// The piece that an address lies in.
    #[must_use]
    pub fn region(&self, at: u64) -> Option<&ImageRegion> {
        let next = self.regions.partition_point(|region| region.start <= at);
        let region = self.regions.get(next.checked_sub(1)?)?;
        region.range().contains(&at).then_some(region)
    }

    /// The file that can't be written and that is mapped at an address.
    #[must_use]
    pub fn file(&self, at: u64) -> Option<&ProcessMapping> {
        let next = self.files.partition_point(|file| file.start <= at);
        let file = &self.files[next.checked_sub(1)?];
        file.range().contains(&at).then_some(file)
    }

    /// The file to which an address belongs, and how far it is behind the place where the file's
    /// first byte is. Variables without a first value lie behind the file's mappings.
    #[must_use]
    pub fn place(&self, at: u64) -> Option<(&ProcessMapping, u64)> {
        let next = self.files.partition_point(|file| file.start <= at);
        let path = &self.files[next.checked_sub(1)?].path;
        let mut before = self.files[..next].iter().rev().take(64);
        let first = before.find(|file| file.path == *path && file.offset == 0)?;
        Some((first, at - first.start))
    }

    /// Whether an address is in a file that can't be written.
    #[must_use]
    pub fn is_in_file(&self, at: u64) -> bool {
        self.file(at).is_some()
    }

    /// The word at an address, if it is there.
    #[must_use]
    pub fn word(&self, at: u64) -> Option<u64> {
        self.region(at)?.word(at)
    }

    /// The mapping that an address lies in, if it is known.
    pub(crate) fn mapping(&self, at: u64) -> Option<Range<u64>> {
        let next = self.mapped.partition_point(|one| one.end <= at);
        self.mapped
            .get(next)
            .filter(|one| one.contains(&at))
            .cloned()
    }

    /// Whether all of a range was mapped, as far as that is known.
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

    /// How many bytes of a range are there.
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

    /// The bytes of a range, as far as they are in one piece.
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

/// Pages that are not there are zeros: the program has not touched them.
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

/// Ranges in order, where those that touch are one.
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

/// The words in some bytes.
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
}
