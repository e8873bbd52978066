//! A heap in sums: by state, by what leaked, by arena.

use std::cmp::Reverse;
use std::collections::HashMap;

use heapprof_process::PAGE;

use crate::bins::{self, List, ListKind};
use crate::heap::{Chunk, Heap, Use};
use crate::image::Image;
use crate::kinds::{Kind, Kinds};
use crate::mark::{Marks, State};
use crate::settings::{self, Settings};
use crate::sum::Sum;

/// Blocks of one state, size and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The state.
    pub state: State,
    /// The bytes of each.
    pub size: u64,
    /// What they are: the name of their class or of what they begin with, or their kind of content.
    pub what: String,
    /// All of them.
    pub sum: Sum,
    /// Where the first one is.
    pub example: u64,
}

/// Blocks of one size and kind that have leaked, and all that only they lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chains {
    /// What the first block of each is.
    pub what: String,
    /// The bytes of each first block.
    pub size: u64,
    /// How many there are.
    pub count: u64,
    /// All blocks of them, with the first ones.
    pub sum: Sum,
    /// Where the first one begins.
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
    /// The lists of what is free: caches, fast lists, bins.
    pub lists: Vec<List>,
}

/// A heap in sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// By state: free, leaked directly, indirectly, maybe reached, reached.
    pub states: [Sum; 5],
    /// What leaked or is maybe reached, the most bytes first.
    pub groups: Vec<Group>,
    /// The chains of blocks that leaked and lead to others, the most bytes first.
    pub chains: Vec<Chains>,
    /// The arenas, the main one first, and what is mapped last.
    pub arenas: Vec<ArenaSum>,
    /// malloc's settings, if they were found.
    pub settings: Option<Settings>,
    /// Blocks of arenas that are as large as those with a mapping of their own.
    pub large_in_arenas: Sum,
    /// How many bytes `malloc_trim(0)` would give back.
    pub trimmed: u64,
    /// How many bins lead nowhere.
    pub broken_bins: u64,
    /// Bytes in which chunks should be, and could not be walked.
    pub unwalked: u64,
}

impl Summary {
    /// Sums a heap up.
    #[must_use]
    pub fn new(image: &Image, heap: &Heap, marks: &Marks, kinds: &mut Kinds<'_>) -> Self {
        let mut summary = Self {
            unwalked: heap.unwalked_bytes(),
            settings: settings::find(image, heap),
            trimmed: bins::trimmed(image, heap),
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
        let mut groups: HashMap<(State, u64, Kind), Group> = HashMap::new();
        for (chunk, &state) in heap.chunks.iter().zip(&marks.states) {
            summary.states[state as usize].add(chunk.size);
            let arena = match chunk.arena {
                Chunk::MAPPED => &mut mapped,
                number => {
                    if chunk.is_in_use() && chunk.size + 8 >= threshold {
                        summary.large_in_arenas.add(chunk.size);
                    }
                    &mut summary.arenas[usize::from(number)]
                }
            };
            add(arena, chunk);
            if matches!(state, State::Free | State::Reached) {
                continue;
            }
            let kind = kinds.of(chunk);
            let group = groups.entry((state, chunk.size, kind)).or_insert(Group {
                state,
                size: chunk.size,
                what: String::new(),
                sum: Sum::default(),
                example: chunk.at,
            });
            group.sum.add(chunk.size);
        }
        if mapped != ArenaSum::default() {
            mapped.system_memory = mapped.in_use.bytes;
            summary.arenas.push(mapped);
        }
        let named = groups.into_iter().map(|((.., kind), group)| Group {
            what: kinds.name(kind).to_string(),
            ..group
        });
        summary.groups = named.collect();
        summary.groups.sort_by(|a, b| {
            let key = |group: &Group| (Reverse(group.sum.bytes), group.state, group.size);
            key(a).cmp(&key(b)).then_with(|| a.what.cmp(&b.what))
        });
        summary.chains = chains(heap, marks, kinds);
        summary
    }
}

/// The chains by the size and kind of their first blocks.
fn chains(heap: &Heap, marks: &Marks, kinds: &mut Kinds<'_>) -> Vec<Chains> {
    let mut found: HashMap<(u64, Kind), Chains> = HashMap::new();
    for (first, sum) in marks.chains(heap).filter(|(_, sum)| sum.blocks > 1) {
        let chunk = &heap.chunks[first];
        let kind = kinds.of(chunk);
        let chains = found.entry((chunk.size, kind)).or_insert_with(|| Chains {
            what: kinds.name(kind).to_string(),
            size: chunk.size,
            count: 0,
            sum: Sum::default(),
            example: chunk.at,
        });
        chains.count += 1;
        chains.sum.blocks += sum.blocks;
        chains.sum.bytes += sum.bytes;
        chains.example = chains.example.min(chunk.at);
    }
    let mut all: Vec<Chains> = found.into_values().collect();
    all.sort_by(|a, b| {
        let key = |one: &Chains| (Reverse(one.sum.bytes), one.size);
        key(a).cmp(&key(b)).then_with(|| a.what.cmp(&b.what))
    });
    all
}

fn add(arena: &mut ArenaSum, chunk: &Chunk) {
    // A chunk's head has 8 bytes. A mapped one has whole pages.
    let bytes = match chunk.arena {
        Chunk::MAPPED => (chunk.size + 16).next_multiple_of(PAGE),
        _ => chunk.size + 8,
    };
    match chunk.kind {
        Use::InUse | Use::Cache => arena.in_use.add(bytes),
        Use::Cached => {
            arena.cached.add(bytes);
            bins::add(&mut arena.lists, ListKind::Cached, bytes);
        }
        Use::Fast => {
            arena.fast.add(bytes);
            bins::add(&mut arena.lists, ListKind::Fast, bytes);
        }
        Use::Free => {
            arena.free.add(bytes);
            arena.largest_free = arena.largest_free.max(bytes);
        }
        Use::Top => arena.top += chunk.size + 16,
    }
}
