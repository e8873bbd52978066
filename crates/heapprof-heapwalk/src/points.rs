//! Who points to a block, and by which way it is reached.

use crate::heap::Heap;
use crate::image::{Image, words};
use crate::mark::{Marks, Source, State};

/// A word that points to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referrer {
    /// Where the word is: in a chunk or in a root; 0 for a register.
    pub at: u64,
    /// What it is in.
    pub source: Source,
    /// How far behind the beginning of the block it points.
    pub offset: u64,
}

/// All words that point to a chunk. Free memory and what has leaked itself count, too, except that
/// free memory does not.
#[must_use]
pub fn referrers(image: &Image, heap: &Heap, marks: &Marks, target: usize) -> Vec<Referrer> {
    let range = heap.chunks[target].range();
    let mut found = Vec::new();
    for (number, thread) in (0..).zip(&image.threads) {
        for &register in thread.registers.iter().filter(|word| range.contains(word)) {
            found.push(Referrer {
                at: 0,
                source: Source::Register(number),
                offset: register - range.start,
            });
        }
    }
    for region in image
        .regions()
        .iter()
        .filter(|region| region.is_writable && !region.is_own)
    {
        for (at, word) in (region.start..).step_by(8).zip(words(&region.bytes)) {
            if !range.contains(&word) {
                continue;
            }
            let source = match heap.find(at) {
                Some(chunk) if marks.states[chunk] == State::Free => continue,
                Some(chunk) => Source::Chunk(chunk as u32),
                None => Source::Root(at),
            };
            found.push(Referrer {
                at,
                source,
                offset: word - range.start,
            });
        }
    }
    found
}

impl Marks {
    /// The way by which a chunk was reached: itself first, then what led there, up to a root.
    #[must_use]
    pub fn way(&self, chunk: usize) -> (Vec<usize>, Source) {
        let mut way = vec![chunk];
        let mut source = self.sources[chunk];
        while let Source::Chunk(next) = source {
            // A ring of what has leaked has no root.
            if way.contains(&(next as usize)) {
                return (way, Source::Nothing);
            }
            way.push(next as usize);
            source = self.sources[next as usize];
        }
        (way, source)
    }
}
