//! Which of malloc's chunks is whose. A chunk that several values have is divided between them.

use heapprof_heapwalk::{Chunk, Heap};

use crate::Address;

/// Whose a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Nobody's so far.
    Nobody,
    /// A value's.
    Value,
    /// Heads of values are in it.
    Heads,
    /// It is a value of its own kind: an arena, a stack, memory of C code.
    Itself,
}

/// The chunks that are in use, and whose they are.
pub(crate) struct Claims<'a> {
    heap: Option<&'a Heap>,
    owners: Vec<Owner>,
    /// Of chunks that values have: the chunk, and the number of the value.
    all: Vec<(u32, u32)>,
}

/// How many bytes malloc took for a chunk, with its own word.
pub(crate) fn whole(chunk: &Chunk) -> u64 {
    chunk.size + 8
}

impl<'a> Claims<'a> {
    pub(crate) fn new(heap: Option<&'a Heap>) -> Self {
        Self {
            heap,
            owners: vec![Owner::Nobody; heap.map_or(0, |heap| heap.chunks.len())],
            all: Vec::new(),
        }
    }

    /// Whether malloc's chunks are known.
    pub(crate) fn has_heap(&self) -> bool {
        self.heap.is_some()
    }

    /// The chunk in use that an address lies in.
    pub(crate) fn find(&self, at: Address) -> Option<u32> {
        let heap = self.heap?;
        let found = heap.find(at)?;
        heap.chunks[found].is_in_use().then_some(found as u32)
    }

    pub(crate) fn chunk(&self, number: u32) -> Option<&'a Chunk> {
        self.heap?.chunks.get(number as usize)
    }

    pub(crate) fn owner(&self, chunk: u32) -> Owner {
        self.owners[chunk as usize]
    }

    /// Says that a value has the chunk that an address lies in. Returns whether there is one.
    pub(crate) fn claim(&mut self, at: Address, value: u32) -> bool {
        let Some(chunk) = self.find(at) else {
            return false;
        };
        if matches!(self.owner(chunk), Owner::Nobody | Owner::Value) {
            self.owners[chunk as usize] = Owner::Value;
            self.all.push((chunk, value));
        }
        true
    }

    /// Takes a chunk that is nobody's. Returns it if it was.
    pub(crate) fn take(&mut self, chunk: u32, owner: Owner) -> Option<&'a Chunk> {
        let before = &mut self.owners[chunk as usize];
        if *before != Owner::Nobody {
            return None;
        }
        *before = owner;
        self.chunk(chunk)
    }

    /// Calls `each` with the bytes that each value has of its chunks.
    pub(crate) fn settle(&mut self, mut each: impl FnMut(u32, u64)) {
        let mut all = std::mem::take(&mut self.all);
        all.sort_unstable();
        for one in all.chunk_by(|one, other| one.0 == other.0) {
            let Some(chunk) = self.chunk(one[0].0) else {
                continue;
            };
            let (size, count) = (whole(chunk), one.len() as u64);
            // The first ones have what is left over.
            for (i, &(_, value)) in (0..).zip(one) {
                each(value, size / count + u64::from(i < size % count));
            }
        }
    }

    /// The chunks in use that are nobody's.
    pub(crate) fn left(&self) -> Vec<u32> {
        let Some(heap) = self.heap else {
            return Vec::new();
        };
        let all = (0..).zip(heap.chunks.iter().zip(&self.owners));
        let left = all.filter(|(_, (chunk, owner))| chunk.is_in_use() && **owner == Owner::Nobody);
        left.map(|(number, _)| number).collect()
    }
}
