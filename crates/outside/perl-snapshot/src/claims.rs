//! Records which values own which of malloc's chunks. A chunk that several values own is divided
//! between them, except for a text that they share: it becomes a separate value.

use heapprof_heap::{HeapChunk, MallocHeap};

use crate::PerlAddress;

/// The owner of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkOwner {
    /// No owner is known yet.
    Unclaimed,
    /// One or more values own the chunk.
    Value,
    /// The chunk is an arena with heads of values.
    Heads,
    /// The chunk became a value itself: an arena, a stack, or memory of C code.
    Itself,
}

/// The chunks in use, and their owners.
pub(crate) struct ChunkClaims<'a> {
    heap: Option<&'a MallocHeap>,
    owners: Vec<ChunkOwner>,
    /// All claims of values to chunks.
    all: Vec<ValueClaim>,
}

/// The claim of a value to a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ValueClaim {
    chunk: u32,
    /// The number of the value.
    value: u32,
    /// Bytes of the chunk that Perl requested.
    asked: u32,
    /// Whether the chunk is a text that several values may share until one of them is changed.
    is_shared: bool,
}

/// A value's share of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChunkShare<'a> {
    /// The chunk, or a part of it, belongs to the value. The numbers are the part's bytes, and how
    /// many of these bytes Perl requested.
    Own(u64, u64),
    /// The chunk is a text that the value shares with others. The number is the number of bytes
    /// that Perl requested.
    Shared(&'a HeapChunk, u64),
}

/// Returns the number of bytes that malloc uses for a chunk, including malloc's own word.
pub(crate) fn allocated_bytes(chunk: &HeapChunk) -> u64 {
    chunk.size + 8
}

/// Returns the odd address that stands for a chunk or an arena in the graph of values. No pointer
/// leads to it, because pointers are even.
pub(crate) fn odd_address(chunk: PerlAddress) -> PerlAddress {
    chunk | 1
}

impl<'a> ChunkClaims<'a> {
    pub(crate) fn new(heap: Option<&'a MallocHeap>) -> Self {
        Self {
            heap,
            owners: vec![ChunkOwner::Unclaimed; heap.map_or(0, |heap| heap.chunks.len())],
            all: Vec::new(),
        }
    }

    /// Whether malloc's chunks are known.
    pub(crate) fn has_heap(&self) -> bool {
        self.heap.is_some()
    }

    /// Returns the number of the chunk in use that contains an address.
    pub(crate) fn find(&self, at: PerlAddress) -> Option<u32> {
        let heap = self.heap?;
        let found = heap.find(at)?;
        heap.chunks[found].is_in_use().then_some(found as u32)
    }

    pub(crate) fn chunk(&self, number: u32) -> Option<&'a HeapChunk> {
        self.heap?.chunks.get(number as usize)
    }

    pub(crate) fn owner(&self, chunk: u32) -> ChunkOwner {
        self.owners[chunk as usize]
    }

    /// Claims the chunk that contains the address `at` for a value, which requested `asked` bytes
    /// of the chunk. Returns whether there is such a chunk.
    pub(crate) fn claim(
        &mut self,
        at: PerlAddress,
        value: u32,
        asked: u64,
        is_shared: bool,
    ) -> bool {
        let Some(chunk) = self.find(at) else {
            return false;
        };
        if matches!(self.owner(chunk), ChunkOwner::Unclaimed | ChunkOwner::Value) {
            self.owners[chunk as usize] = ChunkOwner::Value;
            let size = self.chunk(chunk).map_or(0, |chunk| chunk.size);
            let asked = u32::try_from(asked.min(size)).unwrap_or(u32::MAX);
            self.all.push(ValueClaim {
                chunk,
                value,
                asked,
                is_shared,
            });
        }
        true
    }

    /// Sets the owner of a chunk that has none, and returns the chunk. Returns `None` if the chunk
    /// already has an owner.
    pub(crate) fn take(&mut self, chunk: u32, owner: ChunkOwner) -> Option<&'a HeapChunk> {
        let before = &mut self.owners[chunk as usize];
        if *before != ChunkOwner::Unclaimed {
            return None;
        }
        *before = owner;
        self.chunk(chunk)
    }

    /// Divides all claimed chunks. Calls `each` for every pair of a value and a chunk that it has
    /// claimed, with the value's share of the chunk.
    pub(crate) fn settle(&mut self, mut each: impl FnMut(u32, ChunkShare<'_>)) {
        self.all.sort_unstable();
        for one in self.all.chunk_by(|one, other| one.chunk == other.chunk) {
            let Some(chunk) = self.chunk(one[0].chunk) else {
                continue;
            };
            let (size, count) = (allocated_bytes(chunk), one.len() as u64);
            let is_shared = count > 1 && one.iter().all(|claim| claim.is_shared);
            // The first values get the bytes that are left over.
            for (i, claim) in (0..).zip(one) {
                let asked = match claim.asked {
                    // The request may be as large as the chunk, whose size may not fit into 32
                    // bits.
                    u32::MAX => chunk.size,
                    asked => asked.into(),
                };
                let share = |bytes: u64| bytes / count + u64::from(i < bytes % count);
                match is_shared {
                    true => each(claim.value, ChunkShare::Shared(chunk, asked)),
                    false => each(claim.value, ChunkShare::Own(share(size), share(asked))),
                }
            }
        }
    }

    /// Returns the number of a chunk's only owner; `None` if no value or several values own the
    /// chunk. Must be called after [`settle`](Self::settle).
    pub(crate) fn only_value(&self, chunk: u32) -> Option<u32> {
        let first = self.all.partition_point(|claim| claim.chunk < chunk);
        let claims = self.all[first..].iter();
        let mut values = claims.take_while(|claim| claim.chunk == chunk);
        let value = values.next()?.value;
        values.all(|claim| claim.value == value).then_some(value)
    }

    /// Returns the chunks in use that have no owner.
    pub(crate) fn unclaimed_chunks(&self) -> Vec<u32> {
        let Some(heap) = self.heap else {
            return Vec::new();
        };
        let all = (0..).zip(heap.chunks.iter().zip(&self.owners));
        let left =
            all.filter(|(_, (chunk, owner))| chunk.is_in_use() && **owner == ChunkOwner::Unclaimed);
        left.map(|(number, _)| number).collect()
    }
}
