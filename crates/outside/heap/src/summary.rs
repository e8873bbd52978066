//! Sums up a heap: by state, by leak and by arena.

use std::cmp::Reverse;
use std::collections::HashMap;

use heapprof_process::PAGE_SIZE;

use crate::bins::{self, FreeList, FreeListKind};
use crate::heap::{ChunkUse, HeapChunk, MallocHeap};
use crate::image::ProcessImage;
use crate::kinds::{BlockKind, BlockKinds};
use crate::mark::{ChunkMarks, ChunkState};
use crate::settings::{self, MallocSettings};
use crate::sum::BlockSum;

/// Sum of all blocks of one state, size and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockGroup {
    /// State of the blocks.
    pub state: ChunkState,
    /// Size of each block in bytes.
    pub size: u64,
    /// The blocks' class, the name that their first word leads to, or their kind of content.
    pub what: String,
    /// Number and bytes of all blocks.
    pub sum: BlockSum,
    /// Address of the first block.
    pub example: u64,
}

/// Chains of leaked blocks whose first blocks have the same size and kind. A chain is a directly
/// leaked block and all blocks to which only it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakChains {
    /// The class, name or kind of content of each chain's first block.
    pub what: String,
    /// Size of each first block in bytes.
    pub size: u64,
    /// Number of chains.
    pub count: u64,
    /// Number and bytes of all blocks in the chains, including the first block of each chain.
    pub sum: BlockSum,
    /// Lowest address of the chains' first blocks.
    pub example: u64,
}

/// The memory of an arena, in bytes that include malloc's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaSum {
    /// Address of the arena's structure; 0 for chunks that have a mapping of their own.
    pub at: u64,
    /// Bytes that the arena has from the system, by its own count.
    pub system_memory: u64,
    /// Chunks in use, including the caches of threads.
    pub in_use: BlockSum,
    /// Free chunks in threads' caches.
    pub cached: BlockSum,
    /// Free chunks in lists of fast chunks.
    pub fast: BlockSum,
    /// Free chunks in bins.
    pub free: BlockSum,
    /// Bytes of the top, from which new chunks are cut.
    pub top: u64,
    /// Size of the largest free chunk in a bin.
    pub largest_free: u64,
    /// The lists of free chunks: caches, fast lists, bins.
    pub lists: Vec<FreeList>,
}

/// The sums of a heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapSummary {
    /// Blocks by state: free, leaked directly, leaked indirectly, maybe reached, reached.
    pub states: [BlockSum; 5],
    /// Groups of blocks that leaked or are maybe reached, the most bytes first.
    pub groups: Vec<BlockGroup>,
    /// Chains of leaked blocks with at least two blocks, the most bytes first.
    pub chains: Vec<LeakChains>,
    /// The arenas, the main one first. Chunks that have a mapping of their own come last.
    pub arenas: Vec<ArenaSum>,
    /// malloc's settings, if they were found.
    pub settings: Option<MallocSettings>,
    /// Blocks that lie in arenas, although each is large enough for a mapping of its own.
    pub large_in_arenas: BlockSum,
    /// Bytes that `malloc_trim(0)` would give back.
    pub trimmable: u64,
    /// Number of damaged bins.
    pub broken_bins: u64,
    /// Bytes of ranges in which chunks should be, but could not be walked.
    pub unwalked: u64,
}

impl HeapSummary {
    /// Sums up a heap.
    #[must_use]
    pub fn new(
        image: &ProcessImage,
        heap: &MallocHeap,
        marks: &ChunkMarks,
        kinds: &mut BlockKinds<'_>,
    ) -> Self {
        let mut summary = Self {
            unwalked: heap.unwalked_bytes(),
            settings: settings::find(image, heap),
            trimmable: bins::trimmable_bytes(image, heap),
            ..Self::default()
        };
        let mut is_listed = vec![false; heap.chunks.len()];
        for (number, arena) in (0..).zip(&heap.arenas) {
            let (lists, broken) = bins::bins(image, heap, number, arena, &mut is_listed);
            summary.broken_bins += broken;
            summary.arenas.push(ArenaSum {
                at: arena.at,
                system_memory: arena.system_memory,
                lists,
                ..ArenaSum::default()
            });
        }
        let threshold = summary
            .settings
            .map_or(u64::MAX, |found| found.mmap_threshold);
        let mut mapped = ArenaSum::default();
        let mut groups: HashMap<(ChunkState, u64, BlockKind), BlockGroup> = HashMap::new();
        for (chunk, &state) in heap.chunks.iter().zip(&marks.states) {
            summary.states[state as usize].add(chunk.size);
            let arena = match chunk.arena {
                HeapChunk::MAPPED_ARENA => &mut mapped,
                number => {
                    if chunk.is_in_use() && chunk.size + 8 >= threshold {
                        summary.large_in_arenas.add(chunk.size);
                    }
                    &mut summary.arenas[usize::from(number)]
                }
            };
            add(arena, chunk);
            if matches!(state, ChunkState::Free | ChunkState::Reached) {
                continue;
            }
            let kind = kinds.classify(chunk);
            let group = groups
                .entry((state, chunk.size, kind))
                .or_insert(BlockGroup {
                    state,
                    size: chunk.size,
                    what: String::new(),
                    sum: BlockSum::default(),
                    example: chunk.at,
                });
            group.sum.add(chunk.size);
        }
        if mapped != ArenaSum::default() {
            mapped.system_memory = mapped.in_use.bytes;
            summary.arenas.push(mapped);
        }
        let named = groups.into_iter().map(|((.., kind), group)| BlockGroup {
            what: kinds.name(kind).to_string(),
            ..group
        });
        summary.groups = named.collect();
        summary.groups.sort_by(|a, b| {
            let key = |group: &BlockGroup| (Reverse(group.sum.bytes), group.state, group.size);
            key(a).cmp(&key(b)).then_with(|| a.what.cmp(&b.what))
        });
        summary.chains = chains(heap, marks, kinds);
        summary
    }
}

/// Sums chains by the size and kind of their first blocks.
fn chains(heap: &MallocHeap, marks: &ChunkMarks, kinds: &mut BlockKinds<'_>) -> Vec<LeakChains> {
    let mut found: HashMap<(u64, BlockKind), LeakChains> = HashMap::new();
    for (first, sum) in marks.chains(heap).filter(|(_, sum)| sum.blocks > 1) {
        let chunk = &heap.chunks[first];
        let kind = kinds.classify(chunk);
        let chains = found
            .entry((chunk.size, kind))
            .or_insert_with(|| LeakChains {
                what: kinds.name(kind).to_string(),
                size: chunk.size,
                count: 0,
                sum: BlockSum::default(),
                example: chunk.at,
            });
        chains.count += 1;
        chains.sum.blocks += sum.blocks;
        chains.sum.bytes += sum.bytes;
        chains.example = chains.example.min(chunk.at);
    }
    let mut all: Vec<LeakChains> = found.into_values().collect();
    all.sort_by(|a, b| {
        let key = |one: &LeakChains| (Reverse(one.sum.bytes), one.size);
        key(a).cmp(&key(b)).then_with(|| a.what.cmp(&b.what))
    });
    all
}

fn add(arena: &mut ArenaSum, chunk: &HeapChunk) {
    // A chunk's head has 8 bytes. A mapped one has whole pages.
    let bytes = match chunk.arena {
        HeapChunk::MAPPED_ARENA => (chunk.size + 16).next_multiple_of(PAGE_SIZE),
        _ => chunk.size + 8,
    };
    match chunk.kind {
        ChunkUse::InUse | ChunkUse::Cache => arena.in_use.add(bytes),
        ChunkUse::Cached => {
            arena.cached.add(bytes);
            bins::add(&mut arena.lists, FreeListKind::Cached, bytes);
        }
        ChunkUse::Fast => {
            arena.fast.add(bytes);
            bins::add(&mut arena.lists, FreeListKind::Fast, bytes);
        }
        ChunkUse::Free => {
            arena.free.add(bytes);
            arena.largest_free = arena.largest_free.max(bytes);
        }
        ChunkUse::Top => arena.top += chunk.size + 16,
    }
}
