//! Makes heaps word by word for tests, in the layout of each version of glibc.

mod damage;
mod findings;
mod random;
mod versions;

use crate::heap::{ChunkUse, MallocHeap};
use crate::image::{ImageRegion, ProcessImage};

/// Address of a test heap's variables.
pub(crate) const VARIABLES_ADDRESS: u64 = 0x5554_0000_0000;
/// Address at which the chunks of a test heap begin.
const HEAP_ADDRESS: u64 = 0x5555_0000_0000;
/// Address of libc's variables in a test heap.
const LIBC_ADDRESS: u64 = 0x7f00_0000_0100;

/// Layout of the heap in a version of glibc, by its `malloc.c`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixtureLayout {
    pub(crate) name: &'static str,
    /// Distance from the arena's beginning to its first bin.
    distance: u64,
    /// Whether there are lists of fast chunks.
    has_fast: bool,
    /// A thread's cache: its size in bytes, its number of lists, and the bytes of a count.
    cache: [u64; 3],
    /// Whether each count in a cache is the length of a list. Otherwise, each count is the number
    /// of chunks that a list may still take.
    counts: bool,
    /// Whether the links of free chunks are hidden.
    is_hidden: bool,
}

const fn layout(
    name: &'static str,
    distance: u64,
    cache: [u64; 3],
    is_hidden: bool,
) -> FixtureLayout {
    FixtureLayout {
        name,
        distance,
        has_fast: distance != 0x18,
        cache,
        counts: cache[1] == 64,
        is_hidden,
    }
}

pub(crate) const FIXTURE_LAYOUTS: [FixtureLayout; 6] = [
    layout("2.26", 0x68, [0x240, 64, 1], false),
    layout("2.27 to 2.29", 0x70, [0x240, 64, 1], false),
    layout("2.30, 2.31", 0x70, [0x280, 64, 2], false),
    layout("2.32 to 2.41", 0x70, [0x280, 64, 2], true),
    layout("2.42", 0x70, [0x2f8, 76, 2], true),
    layout("2.43", 0x18, [0x2f8, 76, 2], true),
];

/// A test heap under construction.
pub(crate) struct HeapFixture {
    layout: FixtureLayout,
    heap: Vec<u8>,
    variables: Vec<u64>,
    /// Each block: its address, its bytes, and how malloc uses it.
    pub(crate) blocks: Vec<(u64, u64, ChunkUse)>,
}

impl HeapFixture {
    /// Makes a heap of blocks of the given sizes, which must be 24, 40, 56 … The thread's cache is
    /// put before these blocks, and the last block is in use.
    pub(crate) fn new(layout: FixtureLayout, blocks: &[(u64, ChunkUse)]) -> Self {
        let cache = (layout.cache[0] + 8).next_multiple_of(16) - 8;
        let all = [(cache, ChunkUse::Cache)];
        let all = all.iter().chain(blocks).chain(&[(24, ChunkUse::InUse)]);
        let mut made = Self {
            layout,
            heap: Vec::new(),
            // A thread has the address of its cache.
            variables: vec![HEAP_ADDRESS + 16; 8],
            blocks: Vec::new(),
        };
        let mut is_before_free = false;
        let mut at = HEAP_ADDRESS;
        for &(size, kind) in all {
            made.set_head(at, size, is_before_free);
            made.blocks.push((at + 16, size, kind));
            is_before_free = kind == ChunkUse::Free;
            at += size + 8;
        }
        made
    }

    fn set_head(&mut self, at: u64, size: u64, is_before_free: bool) {
        self.heap
            .resize((at - HEAP_ADDRESS + size + 8) as usize + 16, 0);
        self.set(at + 8, (size + 8) | u64::from(!is_before_free));
    }

    /// Writes a word to a block.
    pub(crate) fn set(&mut self, at: u64, word: u64) {
        let at = (at - HEAP_ADDRESS) as usize;
        self.heap[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Writes a word to a variable.
    pub(crate) fn set_variable(&mut self, number: usize, word: u64) {
        self.variables[number] = word;
    }

    fn link(&self, at: u64, to: u64) -> u64 {
        match self.layout.is_hidden {
            true => to ^ (at >> 12),
            false => to,
        }
    }

    /// Returns the heap as an image, with all lists, and with the top after the last block.
    pub(crate) fn image(mut self) -> ProcessImage {
        let FixtureLayout {
            distance,
            cache: [_, lists, count],
            ..
        } = self.layout;
        let top = HEAP_ADDRESS + self.heap.len() as u64 - 16;
        let room = 0x21000 - (top - HEAP_ADDRESS);
        self.set(top + 8, room | 1);
        self.heap.resize(0x21000, 0);
        let bins = LIBC_ADDRESS + distance;
        let mut libc = vec![0u64; 0x140];
        let place = |at: u64| ((at - (LIBC_ADDRESS - 0x100)) / 8) as usize;
        for bin in 0..127 {
            let own = bins + 16 * bin - 16;
            libc[place(bins + 16 * bin)..][..2].fill(own);
        }
        libc[place(bins - 0x10)] = top;
        libc[place(bins + 0x800)] = LIBC_ADDRESS;
        libc[place(bins + 0x818)] = 0x21000;
        let (cache, ..) = self.blocks[0];
        let mut counts = vec![0u64; lists as usize];
        let mut last_free = bins - 16;
        for (at, size, kind) in self.blocks.clone() {
            let list = (size - 24) / 16;
            match kind {
                ChunkUse::Cached => {
                    let head = cache + lists * count + 8 * list;
                    let first = self.word(head);
                    let link = self.link(at, first);
                    self.set(at, link);
                    self.set(head, at);
                    counts[list as usize] += 1;
                }
                ChunkUse::Fast => {
                    assert!(self.layout.has_fast);
                    let head = place(bins - 0x60 + 8 * list);
                    let link = self.link(at, libc[head]);
                    self.set(at, link);
                    libc[head] = at - 16;
                }
                ChunkUse::Free => {
                    // All free chunks are in the first bin, in a ring.
                    match last_free == bins - 16 {
                        true => libc[place(bins)] = at - 16,
                        false => self.set(last_free + 16, at - 16),
                    }
                    self.set(at, bins - 16);
                    self.set(at + 8, last_free);
                    libc[place(bins + 8)] = at - 16;
                    last_free = at - 16;
                }
                _ => {}
            }
        }
        for (list, &number) in (0..).zip(&counts) {
            let number = if self.layout.counts {
                number
            } else {
                16 - number
            };
            let at = cache + list * count;
            let from = (at - HEAP_ADDRESS) as usize;
            self.heap[from..][..count as usize]
                .copy_from_slice(&number.to_le_bytes()[..count as usize]);
        }
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let region = |start: u64, bytes: Vec<u8>, name: &str| ImageRegion {
            start,
            bytes,
            name: name.to_string(),
            is_writable: true,
            ..ImageRegion::default()
        };
        let regions = vec![
            region(VARIABLES_ADDRESS, bytes(&self.variables), "/program"),
            region(HEAP_ADDRESS, self.heap, "[heap]"),
            region(LIBC_ADDRESS - 0x100, bytes(&libc), "/libc.so.6"),
        ];
        ProcessImage::new(regions, Vec::new(), 0)
    }

    fn word(&self, at: u64) -> u64 {
        let at = (at - HEAP_ADDRESS) as usize;
        self.heap[at..]
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word))
    }
}

/// Walks a heap that must be without damage.
pub(crate) fn walk_sound_heap(image: &ProcessImage) -> MallocHeap {
    let heap = MallocHeap::walk(image).unwrap();
    assert!(heap.unwalked.is_empty(), "{:?}", heap.unwalked);
    assert_eq!(heap.broken_links, 0);
    heap
}
