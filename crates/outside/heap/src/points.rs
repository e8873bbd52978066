//! Finds all pointers to a block, and the path by which it is reached.

use std::collections::HashMap;

use crate::heap::MallocHeap;
use crate::image::{ProcessImage, words};
use crate::mark::{ChunkMarks, ChunkState, PointerSource};
use crate::sum::BlockSum;

/// A word that points to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockReferrer {
    /// Address of the word, in a chunk or in a root; 0 for a register.
    pub at: u64,
    /// The chunk, root or register that has the word.
    pub source: PointerSource,
    /// Distance from the beginning of the block to the address that the word points to.
    pub offset: u64,
}

/// Finds all words that point to a chunk, including words in leaked chunks. Words in free memory do
/// not count.
#[must_use]
pub fn referrers(
    image: &ProcessImage,
    heap: &MallocHeap,
    marks: &ChunkMarks,
    target: usize,
) -> Vec<BlockReferrer> {
    let range = heap.chunks[target].range();
    let mut found = Vec::new();
    for (number, thread) in (0..).zip(&image.threads) {
        for &register in thread.registers.iter().filter(|word| range.contains(word)) {
            found.push(BlockReferrer {
                at: 0,
                source: PointerSource::Register(number),
                offset: register - range.start,
            });
        }
    }
    for region in image.regions().iter().filter(|region| region.is_root()) {
        for (at, word) in (region.start..).step_by(8).zip(words(&region.bytes)) {
            if !range.contains(&word) {
                continue;
            }
            let source = match heap.find(at) {
                Some(chunk) if marks.states[chunk] == ChunkState::Free => continue,
                Some(chunk) => PointerSource::Chunk(chunk as u32),
                None => PointerSource::Root(at),
            };
            found.push(BlockReferrer {
                at,
                source,
                offset: word - range.start,
            });
        }
    }
    found
}

impl ChunkMarks {
    /// Returns each directly leaked block, with the number and bytes of the blocks in its chain.
    /// The chain is the block and the leaked blocks that were found through it; each leaked block
    /// is in one chain.
    pub(crate) fn chains(&self, heap: &MallocHeap) -> impl Iterator<Item = (usize, BlockSum)> {
        let mut sums: HashMap<u32, BlockSum> = HashMap::new();
        for ((first, state), chunk) in self
            .firsts()
            .into_iter()
            .zip(&self.states)
            .zip(&heap.chunks)
        {
            if matches!(state, ChunkState::Leaked | ChunkState::Indirect) {
                sums.entry(first).or_default().add(chunk.size);
            }
        }
        sums.into_iter().map(|(first, sum)| (first as usize, sum))
    }

    /// Returns, for each chunk, the root at the beginning of the path by which it was reached.
    #[must_use]
    pub fn roots(&self) -> Vec<PointerSource> {
        let root = |first: u32| self.sources[first as usize];
        self.firsts().into_iter().map(root).collect()
    }

    /// Returns, for each chunk, the number of the first chunk of the path by which it was reached:
    /// a root points to this chunk. The first chunk of a leaked one is directly leaked.
    #[must_use]
    pub fn firsts(&self) -> Vec<u32> {
        let mut firsts = vec![u32::MAX; self.states.len()];
        let mut path = Vec::new();
        for number in 0..self.states.len() as u32 {
            let first = self.first(number, &firsts, &mut path);
            firsts[number as usize] = first;
            path.drain(..)
                .for_each(|passed: u32| firsts[passed as usize] = first);
        }
        firsts
    }

    /// Returns the first chunk of the path by which the chunk `at` was reached: a root points to
    /// this chunk. `firsts` holds the results that are already known, by chunk. All other chunks
    /// that the search visits are appended to `path`.
    fn first(&self, mut at: u32, firsts: &[u32], path: &mut Vec<u32>) -> u32 {
        loop {
            match (firsts[at as usize], self.sources[at as usize]) {
                (u32::MAX, PointerSource::Chunk(next)) => {
                    path.push(at);
                    at = next;
                }
                (u32::MAX, _) => return at,
                (first, _) => return first,
            }
        }
    }

    /// Returns the path by which a chunk was reached: the chunk itself, then the chunks that lead
    /// to it up to the root.
    #[must_use]
    pub fn way(&self, chunk: usize) -> (Vec<usize>, PointerSource) {
        let mut way = vec![chunk];
        let mut source = self.sources[chunk];
        while let PointerSource::Chunk(next) = source {
            way.push(next as usize);
            source = self.sources[next as usize];
        }
        (way, source)
    }
}
