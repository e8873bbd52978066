//! What would go if a block went: the block itself, and all that is reached only through it.

use crate::dominators::{Dominators, Graph};
use crate::heap::Heap;
use crate::image::Image;
use crate::mark::{Marks, State, words_of};

/// What each block retains, by its number: its own bytes and those of all blocks that it dominates.
/// 0 for blocks that are not reached.
#[must_use]
pub fn retained(image: &Image, heap: &Heap, marks: &Marks) -> Vec<u64> {
    let is_reached = |block: usize| matches!(marks.states[block], State::Reached | State::Maybe);
    let count = heap.chunks.len();
    let root = count as u32;
    let mut graph = Graph {
        first: vec![0],
        to: Vec::new(),
    };
    let mut is_from_root = vec![false; count];
    for root in crate::mark::root_words(image, heap) {
        if let Some(block) = heap.find_pointed(root) {
            is_from_root[block] = true;
        }
    }
    for (block, chunk) in heap.chunks.iter().enumerate() {
        if is_reached(block) && chunk.is_in_use() {
            let from = graph.to.len();
            let found =
                words_of(image, chunk.bytes()).filter_map(|(_, word)| heap.find_pointed(word));
            let found = found.filter(|&to| is_reached(to)).map(|to| to as u32);
            graph.to.extend(found);
            // Most blocks that point to another one do so once.
            graph.to[from..].sort_unstable();
            let mut kept = from;
            for i in from..graph.to.len() {
                if kept == from || graph.to[i] != graph.to[kept - 1] {
                    graph.to[kept] = graph.to[i];
                    kept += 1;
                }
            }
            graph.to.truncate(kept);
        }
        graph.first.push(graph.to.len() as u32);
    }
    let from_root = (0..count).filter(|&block| is_from_root[block] && is_reached(block));
    graph.to.extend(from_root.map(|block| block as u32));
    graph.first.push(graph.to.len() as u32);
    let dominators = Dominators::new(&graph, root);
    let mut retained = vec![0u64; count + 1];
    for &node in dominators.order.iter().rev() {
        if let Some(chunk) = heap.chunks.get(node as usize) {
            retained[node as usize] += chunk.size;
        }
        if let Some(parent) = dominators.parent(node) {
            retained[parent as usize] += retained[node as usize];
        }
    }
    retained.truncate(count);
    retained
}
