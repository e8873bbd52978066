//! Assigns each block that is reached to the first root that reaches it. The blocks of all roots
//! add up to all blocks that are reached.

use crate::heap::MallocHeap;
use crate::image::ProcessImage;
use crate::mark::{ChunkMarks, ChunkState, PointerSource, root_words, words_of};

/// Value that stands for "no owner".
const NO_OWNER: u32 = u32::MAX;

/// Returns, for each block, the number of the owner whose root reaches it first; `None` for a block
/// that no root reaches. `owner_of` returns the number, counted from 0, of the owner (a variable or
/// a stack, for example) that a root is in. Variables come before stacks and registers, in which
/// old pointers may lie.
#[must_use]
pub fn block_owners(
    image: &ProcessImage,
    heap: &MallocHeap,
    marks: &ChunkMarks,
    mut owner_of: impl FnMut(PointerSource) -> u32,
) -> Vec<Option<u32>> {
    let mut owners = vec![NO_OWNER; heap.chunks.len()];
    let mut queue: Vec<usize> = Vec::new();
    let is_reached =
        |block: usize| matches!(marks.states[block], ChunkState::Reached | ChunkState::Maybe);
    let find = |word: u64, may_be_link: bool| {
        let found = heap.find_pointed(word, may_be_link);
        found.filter(|&block| is_reached(block))
    };
    for (source, word, may_be_link) in root_words(image, heap) {
        let Some(first) = find(word, may_be_link).filter(|&block| owners[block] == NO_OWNER) else {
            continue;
        };
        let owner = owner_of(source);
        owners[first] = owner;
        queue.push(first);
        while let Some(block) = queue.pop() {
            let chunk = &heap.chunks[block];
            if !chunk.is_in_use() {
                continue;
            }
            for (at, word) in words_of(image, chunk.bytes()) {
                if let Some(next) = find(word, chunk.may_have_link_at(at))
                    && owners[next] == NO_OWNER
                {
                    owners[next] = owner;
                    queue.push(next);
                }
            }
        }
    }
    let owner = |owner: u32| (owner != NO_OWNER).then_some(owner);
    owners.into_iter().map(owner).collect()
}
