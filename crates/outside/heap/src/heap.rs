//! The chunks of a heap, and the search for the chunk that an address lies in.

use std::ops::Range;

use heapprof_process::PAGE_SIZE;

use crate::arena::MallocArena;

/// A chunk of malloc's memory. Its address and size are those that the program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapChunk {
    /// Address of the chunk's first byte, which malloc returned.
    pub at: u64,
    /// Bytes that the program may use.
    pub size: u64,
    /// Number of the chunk's arena, or [`HeapChunk::MAPPED_ARENA`] for a chunk that has its own
    /// mapping.
    pub arena: u16,
    /// How malloc uses the chunk.
    pub kind: ChunkUse,
}

/// How malloc uses the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkUse {
    /// The chunk is in use by the program.
    InUse,
    /// The chunk is free, and in a bin.
    Free,
    /// The chunk is free, and in a list of fast chunks.
    Fast,
    /// The chunk is free, and in a thread's cache.
    Cached,
    /// The chunk is the top, from which new chunks are cut.
    Top,
    /// The chunk is a thread's cache itself.
    Cache,
}

impl HeapChunk {
    /// Arena number of a chunk that has its own mapping.
    pub const MAPPED_ARENA: u16 = u16::MAX;

    /// Returns the addresses that belong to the chunk. A chunk of no bytes has one address, its
    /// first.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + self.size.max(1)
    }

    /// Returns the addresses of the chunk's bytes.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.at..self.at + self.size
    }

    /// Whether the word at an address in the chunk may be a link that malloc left there. Blocks are
    /// cut from larger free chunks, whose links are not erased. Returns false for the chunk's last
    /// word: there a program may store a link of its own, which points to the last word of another
    /// block.
    pub(crate) fn may_have_link_at(&self, at: u64) -> bool {
        at + 8 != self.at + self.size
    }

    /// Whether the program uses the chunk.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.kind == ChunkUse::InUse
    }
}

/// Properties of the glibc version to which a heap belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MallocVersion {
    /// Whether the links in lists of free chunks are hidden (2.32 and later).
    pub hides_links: bool,
    /// Size of a thread's cache in bytes; 0 if there is none.
    pub cache: u64,
}

/// A range in which chunks lie without a gap.
#[derive(Clone, Debug)]
struct ChunkSpan {
    range: Range<u64>,
    /// Bytes of address space for each entry of `pages`. Spans of large chunks have larger pages,
    /// so that the table stays small.
    page: u64,
    /// For each page, the number of the first chunk that begins in the page or after it. One more
    /// entry is for the end.
    pages: Vec<u32>,
}

/// A heap: all chunks that could be walked.
#[derive(Clone, Debug)]
pub struct MallocHeap {
    /// The arenas, the main one first.
    pub arenas: Vec<MallocArena>,
    /// The chunks, in order of their addresses.
    pub chunks: Vec<HeapChunk>,
    /// Whether the list of arenas is complete.
    pub has_all_arenas: bool,
    /// Approximate number of bytes of the main arena that were not found.
    pub missing_main_bytes: u64,
    /// Address at which the main arena's chunks begin.
    pub main_start: Option<u64>,
    /// Properties of the glibc version to which the heap belongs.
    pub version: MallocVersion,
    /// Ranges in which chunks should be, but could not be walked.
    pub unwalked: Vec<Range<u64>>,
    /// Number of entries in lists of free chunks that lead nowhere.
    pub broken_links: u64,
    spans: Vec<ChunkSpan>,
    /// Range from the first to the last address of all spans.
    bounds: Range<u64>,
}

impl MallocHeap {
    /// Makes a heap from chunks, which lie in the address ranges `ranges`.
    pub(crate) fn new(
        arenas: Vec<MallocArena>,
        mut chunks: Vec<HeapChunk>,
        unwalked: Vec<Range<u64>>,
        mut ranges: Vec<Range<u64>>,
    ) -> Self {
        chunks.sort_unstable_by_key(|chunk| chunk.at);
        chunks.dedup_by_key(|chunk| chunk.at);
        ranges.sort_unstable_by_key(|range| range.start);
        let spans = spans(&ranges, &chunks);
        let first = spans.first().map_or(0, |span| span.range.start);
        let last = spans.last().map_or(0, |span| span.range.end);
        Self {
            arenas,
            chunks,
            has_all_arenas: true,
            missing_main_bytes: 0,
            main_start: None,
            version: MallocVersion::default(),
            unwalked,
            broken_links: 0,
            spans,
            bounds: first..last,
        }
    }

    /// Returns the number of the chunk that contains an address.
    #[must_use]
    pub fn find(&self, at: u64) -> Option<usize> {
        if !self.bounds.contains(&at) {
            return None;
        }
        let next = self.spans.partition_point(|span| span.range.start <= at);
        let span = &self.spans[next.checked_sub(1)?];
        if at >= span.range.end {
            return None;
        }
        let page = ((at - span.range.start) / span.page) as usize;
        let (first, last) = (span.pages[page] as usize, span.pages[page + 1] as usize);
        let behind = first + self.chunks[first..last].partition_point(|chunk| chunk.at <= at);
        let found = behind.checked_sub(1)?;
        self.chunks[found].range().contains(&at).then_some(found)
    }

    /// Returns the number of the chunk that a pointer of the program leads to.
    ///
    /// `may_be_link` is true if malloc may have left a link where the pointer is: in a register, on
    /// a stack, or in a block. malloc's links lead to the heads of chunks. The head of a chunk
    /// begins in the last word of the previous chunk. So if `may_be_link` is true, a pointer to the
    /// last word of a chunk counts as a link, and leads to no chunk.
    #[must_use]
    pub fn find_pointed(&self, at: u64, may_be_link: bool) -> Option<usize> {
        let found = self.find(at)?;
        let chunk = &self.chunks[found];
        let is_head = may_be_link
            && chunk.arena != HeapChunk::MAPPED_ARENA
            && chunk.size > 8
            && at == chunk.at + chunk.size - 8;
        (!is_head).then_some(found)
    }

    /// Returns the number of bytes that could not be walked.
    #[must_use]
    pub fn unwalked_bytes(&self) -> u64 {
        self.unwalked.iter().map(|one| one.end - one.start).sum()
    }

    /// Returns the address ranges of the heap. Pointers in these ranges are not roots.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.spans.iter().map(|span| span.range.clone())
    }
}

/// Makes the tables that find the chunk at an address.
fn spans(ranges: &[Range<u64>], chunks: &[HeapChunk]) -> Vec<ChunkSpan> {
    let mut spans: Vec<ChunkSpan> = Vec::new();
    let starts = ranges.iter().skip(1).map(|range| range.start);
    for (range, limit) in ranges.iter().zip(starts.chain([u64::MAX])) {
        // The top is behind the range, and a chunk's last word is in the head of the next one.
        let first = chunks.partition_point(|chunk| chunk.at < range.start);
        let mut end = range.end + 8;
        let last = chunks.partition_point(|chunk| chunk.at < (end + 16).min(limit));
        if let Some(chunk) = chunks.get(last.max(1) - 1) {
            end = end.max(chunk.range().end);
        }
        end = end.min(limit);
        let start = range.start;
        if spans.last().is_some_and(|last| last.range.end > start) {
            continue;
        }
        let inside = chunks.partition_point(|chunk| chunk.at < end) - first;
        let most = 4 * inside as u64 + 16;
        let page = ((end - start) / most).next_power_of_two().max(PAGE_SIZE);
        let count = (end - start).div_ceil(page) as usize;
        let mut pages = Vec::with_capacity(count + 1);
        let mut at = first;
        for number in 0..=count as u64 {
            let address = start + number * page;
            while chunks.get(at).is_some_and(|chunk| chunk.at < address) {
                at += 1;
            }
            pages.push(at as u32);
        }
        spans.push(ChunkSpan {
            range: start..end,
            page,
            pages,
        });
    }
    spans
}
