//! Which of malloc's chunks is whose. A chunk that several values have is divided between them,
//! except for a text, which is a value of its own then.

use heapprof_heap::{HeapChunk, MallocHeap};

use crate::PerlAddress;

/// Whose a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkOwner {
    /// Nobody's so far.
    Unclaimed,
    /// A value's.
    Value,
    /// Heads of values are in it.
    Heads,
    /// It is a value of its own kind: an arena, a stack, memory of C code.
    Itself,
}

/// The chunks that are in use, and whose they are.
pub(crate) struct ChunkClaims<'a> {
    heap: Option<&'a MallocHeap>,
    owners: Vec<ChunkOwner>,
    /// Of chunks that values have.
    all: Vec<ValueClaim>,
}

/// A chunk that a value has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ValueClaim {
    chunk: u32,
    /// The number of the value.
    value: u32,
    /// How many bytes of it Perl asked for.
    asked: u32,
    /// Whether it is a text that is shared until somebody changes it.
    is_shared: bool,
}

/// What a value has of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChunkShare<'a> {
    /// So many bytes, and how many of these Perl asked for.
    Own(u64, u64),
    /// It shares the chunk, of which Perl asked for so many bytes.
    Shared(&'a HeapChunk, u64),
}

/// How many bytes malloc took for a chunk, with its own word.
pub(crate) fn allocated_bytes(chunk: &HeapChunk) -> u64 {
    chunk.size + 8
}

/// The address of something in a chunk to which no pointer leads, because none is odd.
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

    /// The chunk in use that an address lies in.
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

    /// Says that a value has the chunk that an address lies in, of which Perl asked for so many
    /// bytes. Returns whether there is one.
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

    /// Takes a chunk that is nobody's. Returns it if it was.
    pub(crate) fn take(&mut self, chunk: u32, owner: ChunkOwner) -> Option<&'a HeapChunk> {
        let before = &mut self.owners[chunk as usize];
        if *before != ChunkOwner::Unclaimed {
            return None;
        }
        *before = owner;
        self.chunk(chunk)
    }

    /// Calls `each` with what each value has of its chunks.
    pub(crate) fn settle(&mut self, mut each: impl FnMut(u32, ChunkShare<'_>)) {
        self.all.sort_unstable();
        for one in self.all.chunk_by(|one, other| one.chunk == other.chunk) {
            let Some(chunk) = self.chunk(one[0].chunk) else {
                continue;
            };
            let (size, count) = (allocated_bytes(chunk), one.len() as u64);
            let is_shared = count > 1 && one.iter().all(|claim| claim.is_shared);
            // The first ones have what is left over.
            for (i, claim) in (0..).zip(one) {
                let asked = match claim.asked {
                    // It is as large as the chunk, which may be larger than this can say.
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

    /// The number of the only value that has a chunk. It is known after they were settled.
    pub(crate) fn only_value(&self, chunk: u32) -> Option<u32> {
        let first = self.all.partition_point(|claim| claim.chunk < chunk);
        let claims = self.all[first..].iter();
        let mut values = claims.take_while(|claim| claim.chunk == chunk);
        let value = values.next()?.value;
        values.all(|claim| claim.value == value).then_some(value)
    }

    /// The chunks in use that are nobody's.
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
