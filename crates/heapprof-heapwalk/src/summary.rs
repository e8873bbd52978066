//! A heap in sums: by state, by what leaked, by arena.

use std::collections::HashMap;

use crate::content::{Content, content};
use crate::heap::{Chunk, Heap, Kind};
use crate::image::Image;
use crate::mark::{Marks, State};

/// How many blocks, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Blocks.
    pub blocks: u64,
    /// Their bytes, as the program may use them.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }
}

/// Blocks of one state, size and kind of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The state.
    pub state: State,
    /// The bytes of each.
    pub size: u64,
    /// What is in them.
    pub content: Content,
    /// All of them.
    pub sum: Sum,
    /// Where the first one is.
    pub example: u64,
}

/// What an arena has, in bytes with malloc's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaSum {
    /// Where its structure is; 0 for chunks that have a mapping of their own.
    pub at: u64,
    /// What it has from the system, as it says itself.
    pub system_memory: u64,
    /// What the program has.
    pub in_use: Sum,
    /// What threads' caches have.
    pub cached: Sum,
    /// What lists of fast chunks have.
    pub fast: Sum,
    /// What bins have.
    pub free: Sum,
    /// What new chunks are cut from.
    pub top: u64,
    /// The largest free chunk in a bin.
    pub largest_free: u64,
}

/// A heap in sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// By state: free, leaked directly, indirectly, maybe reached, reached.
    pub states: [Sum; 5],
    /// What leaked or is maybe reached, the most bytes first.
    pub groups: Vec<Group>,
    /// The arenas, the main one first, and what is mapped last.
    pub arenas: Vec<ArenaSum>,
    /// Bytes in which chunks should be, and could not be walked.
    pub unwalked: u64,
}

impl Summary {
    /// Sums a heap up.
    #[must_use]
    pub fn new(image: &Image, heap: &Heap, marks: &Marks) -> Self {
        let mut summary = Self {
            arenas: heap
                .arenas
                .iter()
                .map(|arena| ArenaSum {
                    at: arena.at,
                    system_memory: arena.system_memory,
                    ..ArenaSum::default()
                })
                .collect(),
            unwalked: heap
                .unwalked
                .iter()
                .map(|range| range.end - range.start)
                .sum(),
            ..Self::default()
        };
        let mut mapped = ArenaSum::default();
        let mut groups: HashMap<(State, u64, Content), Group> = HashMap::new();
        for (chunk, &state) in heap.chunks.iter().zip(&marks.states) {
            summary.states[state as usize].add(chunk.size);
            let arena = match chunk.arena {
                Chunk::MAPPED => &mut mapped,
                number => &mut summary.arenas[usize::from(number)],
            };
            add(arena, chunk);
            if matches!(state, State::Free | State::Reached) {
                continue;
            }
            let content = block_content(image, heap, chunk);
            let group = groups.entry((state, chunk.size, content)).or_insert(Group {
                state,
                size: chunk.size,
                content,
                sum: Sum::default(),
                example: chunk.at,
            });
            group.sum.add(chunk.size);
        }
        if mapped != ArenaSum::default() {
            mapped.system_memory = mapped.in_use.bytes;
            summary.arenas.push(mapped);
        }
        summary.groups = groups.into_values().collect();
        summary.groups.sort_by_key(|group| {
            let bytes = std::cmp::Reverse(group.sum.bytes);
            (bytes, group.state, group.size, group.content)
        });
        summary
    }
}

/// What is in a block.
#[must_use]
pub fn block_content(image: &Image, heap: &Heap, chunk: &Chunk) -> Content {
    let bytes = image.bytes(chunk.at..chunk.at + chunk.size);
    content(bytes, heap, |at| image.is_in_file(at))
}

fn add(arena: &mut ArenaSum, chunk: &Chunk) {
    // A chunk's head has 8 bytes, and that of a mapped one 16.
    let head = if chunk.arena == Chunk::MAPPED { 16 } else { 8 };
    let bytes = chunk.size + head;
    match chunk.kind {
        Kind::InUse | Kind::Cache => arena.in_use.add(bytes),
        Kind::Cached => arena.cached.add(bytes),
        Kind::Fast => arena.fast.add(bytes),
        Kind::Free => {
            arena.free.add(bytes);
            arena.largest_free = arena.largest_free.max(bytes);
        }
        Kind::Top => arena.top += chunk.size + 16,
    }
}
