//! Computes retained sizes: the bytes that would be freed if a block or a variable were gone. These
//! are the bytes of the block itself and of all blocks that are reached only through it.

use heapprof_objects::Graph;

use crate::heap::MallocHeap;
use crate::image::ProcessImage;
use crate::mark::{ChunkMarks, ChunkState, PointerSource, root_words, words_of};

/// The bytes that each block retains, and that each holder (a variable or a stack, for example)
/// retains.
#[derive(Clone, Debug, Default)]
pub struct RetainedSizes {
    /// For each block, by its number: its own bytes, plus the bytes of all blocks that it
    /// dominates. 0 for blocks that are not reached.
    pub blocks: Vec<u64>,
    /// For each holder, by its number: the bytes of all blocks that it dominates.
    pub holders: Vec<u64>,
}

/// Computes the bytes that are retained by each block, and by each holder outside of malloc's
/// memory. `holder_of` returns the number, counted from 0, of the holder (a variable or a stack,
/// for example) that a root is in. A holder has no bytes of its own.
#[must_use]
pub fn retained_sizes(
    image: &ProcessImage,
    heap: &MallocHeap,
    marks: &ChunkMarks,
    mut holder_of: impl FnMut(PointerSource) -> u32,
) -> RetainedSizes {
    let is_reached =
        |block: usize| matches!(marks.states[block], ChunkState::Reached | ChunkState::Maybe);
    let found = |word: u64, may_be_link: bool| {
        let found = heap.find_pointed(word, may_be_link);
        found.filter(|&to| is_reached(to)).map(|to| to as u32)
    };
    let mut graph = Graph::default();
    for (block, chunk) in heap.chunks.iter().enumerate() {
        if is_reached(block) && chunk.is_in_use() {
            let words = words_of(image, chunk.bytes());
            graph.lead_to(words.filter_map(|(at, word)| found(word, chunk.may_have_link_at(at))));
        }
        graph.end_node();
    }
    // The nodes of holders follow those of blocks. The last node leads to all holders.
    let mut held: Vec<Vec<u32>> = Vec::new();
    for (source, word, may_be_link) in root_words(image, heap) {
        if let Some(to) = found(word, may_be_link) {
            let holder = holder_of(source) as usize;
            if held.len() <= holder {
                held.resize(holder + 1, Vec::new());
            }
            held[holder].push(to);
        }
    }
    let count = heap.chunks.len() as u32;
    let holders = held.len() as u32;
    for blocks in held {
        graph.lead_to(blocks);
        graph.end_node();
    }
    graph.lead_to(count..count + holders);
    graph.end_node();
    let size = |node: u32| heap.chunks.get(node as usize).map_or(0, |chunk| chunk.size);
    let mut blocks = heapprof_objects::retained_sizes(&graph, count + holders, size);
    blocks.truncate((count + holders) as usize);
    let holders = blocks.split_off(count as usize);
    RetainedSizes { blocks, holders }
}
