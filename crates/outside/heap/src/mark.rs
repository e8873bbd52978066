//! Finds the chunks that can be reached, and the pointers by which they are reached.
//!
//! Roots are the registers of all threads, their stacks, and all writable memory that is not
//! malloc's: variables, thread-local memory, the program's own mappings. A chunk is *reached* if a
//! pointer to its beginning is in a root or in a chunk that is reached. It is *maybe* reached if
//! only pointers into its middle lead there. Any other chunk in use has leaked: *directly* if
//! nothing leads there, *indirectly* if only leaked chunks do. As in valgrind, two kinds of
//! pointers into the middle count as pointers to the beginning: pointers to the bytes after the
//! length of a C++ array or string, and pointers to the second base of a C++ object.

use std::ops::Range;

use heapprof_objects::postorder;

use crate::arena::MallocArena;
use crate::heap::{ChunkUse, HeapChunk, MallocHeap};
use crate::image::{ProcessImage, join_ranges, words};

/// Bytes below the end of a stack that a function may use (the red zone of the x86-64 ABI).
const RED_ZONE_SIZE: u64 = 128;

/// Whether and how a chunk can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChunkState {
    /// The chunk is free: malloc has it.
    #[default]
    Free,
    /// No pointer leads to the chunk.
    Leaked,
    /// Only pointers in leaked chunks lead to the chunk.
    Indirect,
    /// Only pointers into the middle of the chunk lead to the chunk.
    Maybe,
    /// The chunk can be reached from a root.
    Reached,
}

impl ChunkState {
    /// Returns the state's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Leaked => "leaked",
            Self::Indirect => "leaked, indirectly",
            Self::Maybe => "maybe",
            Self::Reached => "reached",
        }
    }
}

/// Where a pointer to a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerSource {
    /// No pointer was found.
    Nothing,
    /// A root word in memory, with its address.
    Root(u64),
    /// A register of a thread, with the thread's index in [`ProcessImage::threads`].
    Register(u32),
    /// Another chunk, with its number.
    Chunk(u32),
}

/// The state of each chunk, and the pointer that leads to it.
#[derive(Clone, Debug)]
pub struct ChunkMarks {
    /// The states, by the number of the chunk.
    pub states: Vec<ChunkState>,
    /// The first pointer that led to each chunk, by the number of the chunk.
    pub sources: Vec<PointerSource>,
}

impl ChunkMarks {
    /// Marks all chunks of a heap.
    #[must_use]
    pub fn new(image: &ProcessImage, heap: &MallocHeap) -> Self {
        let initial = |chunk: &HeapChunk| match chunk.kind {
            ChunkUse::InUse => ChunkState::Leaked,
            ChunkUse::Cache => ChunkState::Reached,
            _ => ChunkState::Free,
        };
        let mut marker = ChunkMarker {
            image,
            heap,
            states: heap.chunks.iter().map(initial).collect(),
            sources: vec![PointerSource::Nothing; heap.chunks.len()],
            queue: Vec::new(),
            maybe: Vec::new(),
        };
        for (source, word, may_be_link) in root_words(image, heap) {
            marker.follow_word(word, may_be_link, source);
        }
        marker.follow(ChunkState::Reached);
        let maybe = std::mem::take(&mut marker.maybe);
        for (number, source) in maybe {
            marker.reach(number, ChunkState::Maybe, source);
        }
        marker.follow(ChunkState::Maybe);
        marker.divide_leaks();
        Self {
            states: marker.states,
            sources: marker.sources,
        }
    }
}

struct ChunkMarker<'a> {
    image: &'a ProcessImage,
    heap: &'a MallocHeap,
    states: Vec<ChunkState>,
    sources: Vec<PointerSource>,
    /// Chunks whose words were not read yet.
    queue: Vec<u32>,
    /// Chunks into whose middle a root or a reached chunk points, with the source of the pointer.
    maybe: Vec<(u32, PointerSource)>,
}

impl ChunkMarker<'_> {
    /// Follows a word that is in a root or in a reached chunk.
    fn follow_word(&mut self, word: u64, may_be_link: bool, source: PointerSource) {
        let Some(found) = self.heap.find_pointed(word, may_be_link) else {
            return;
        };
        let chunk = &self.heap.chunks[found];
        if !chunk.is_in_use() || self.states[found] == ChunkState::Reached {
            return;
        }
        let number = found as u32;
        match is_whole(self.image, chunk, word) {
            true => self.reach(number, ChunkState::Reached, source),
            false => self.maybe.push((number, source)),
        }
    }

    fn reach(&mut self, number: u32, state: ChunkState, source: PointerSource) {
        let at = number as usize;
        if self.states[at] < state {
            self.states[at] = state;
            self.sources[at] = source;
            self.queue.push(number);
        }
    }

    /// Follows the words of all chunks in the queue, whose state is `state`.
    fn follow(&mut self, state: ChunkState) {
        let mut done = 0;
        // The queue is read in order, so that the first source of a chunk is near to a root.
        while done < self.queue.len() {
            let number = self.queue[done];
            done += 1;
            let chunk = self.heap.chunks[number as usize];
            let source = PointerSource::Chunk(number);
            for (at, word) in words_of(self.image, chunk.bytes()) {
                let may_be_link = chunk.may_have_link_at(at);
                match state {
                    ChunkState::Reached => self.follow_word(word, may_be_link, source),
                    _ => self.follow_maybe_word(word, may_be_link, source),
                }
            }
        }
        self.queue.clear();
    }

    /// Follows a word of a chunk that is maybe reached: the chunk that it leads to is maybe
    /// reached, too.
    fn follow_maybe_word(&mut self, word: u64, may_be_link: bool, source: PointerSource) {
        if let Some(found) = self.heap.find_pointed(word, may_be_link)
            && self.heap.chunks[found].is_in_use()
        {
            self.reach(found as u32, ChunkState::Maybe, source);
        }
    }

    /// Divides leaked chunks into directly leaked ones and indirectly leaked ones, to which only
    /// leaked chunks lead. If leaked chunks form a ring, and nothing else leads there, the first of
    /// them counts as directly leaked.
    fn divide_leaks(&mut self) {
        let mut is_left: Vec<bool> = self
            .states
            .iter()
            .map(|&one| one == ChunkState::Leaked)
            .collect();
        let mut is_seen: Vec<bool> = is_left.iter().map(|is_left| !is_left).collect();
        let begin = |number: u32| self.heap.chunks[number as usize].at;
        // Finds the next leaked chunk that a word of the block at or after `at` leads to, and moves
        // `at` behind that word.
        let next = |number: u32, at: &mut u64| {
            let chunk = &self.heap.chunks[number as usize];
            let mut rest = words_of(self.image, *at..chunk.bytes().end);
            let (found_at, found) = rest.find_map(|(at, word)| {
                let found = self.heap.find_pointed(word, chunk.may_have_link_at(at))?;
                (self.states[found] == ChunkState::Leaked).then_some((at, found))
            })?;
            *at = found_at + 8;
            Some(found as u32)
        };
        let done = postorder(&mut is_seen, begin, next);
        for number in done.into_iter().rev() {
            // Each block that this one leads to and that is not in another chain yet is in its
            // chain.
            if std::mem::take(&mut is_left[number as usize]) {
                self.queue.push(number);
            }
            while let Some(number) = self.queue.pop() {
                let chunk = self.heap.chunks[number as usize];
                for (at, word) in words_of(self.image, chunk.bytes()) {
                    if let Some(found) = self.heap.find_pointed(word, chunk.may_have_link_at(at))
                        && std::mem::take(&mut is_left[found])
                    {
                        self.states[found] = ChunkState::Indirect;
                        self.sources[found] = PointerSource::Chunk(number);
                        self.queue.push(found as u32);
                    }
                }
            }
        }
    }
}

/// Returns the words of a range, each with its address. Pages that were never touched are left out.
pub(crate) fn words_of(
    image: &ProcessImage,
    range: Range<u64>,
) -> impl Iterator<Item = (u64, u64)> {
    let mut at = range.start;
    let pieces = std::iter::from_fn(move || {
        while at < range.end {
            let start = at;
            let bytes = image.bytes(at..range.end);
            if !bytes.is_empty() {
                at += bytes.len() as u64;
                return Some((start, bytes));
            }
            let regions = image.regions();
            let next = regions.partition_point(|region| region.start <= at);
            at = regions.get(next).map_or(range.end, |region| region.start);
        }
        None
    });
    pieces.flat_map(|(start, bytes)| (start..).step_by(8).zip(words(bytes)))
}

/// Whether a pointer counts as a pointer to the beginning of a chunk, although it may lead into the
/// chunk's middle.
fn is_whole(image: &ProcessImage, chunk: &HeapChunk, word: u64) -> bool {
    let offset = word - chunk.at;
    if offset == 0 {
        return true;
    }
    if !offset.is_multiple_of(8) || offset >= chunk.size {
        return false;
    }
    let first = image.word(chunk.at).unwrap_or(0);
    let rest = chunk.size - offset;
    // A block may be up to 15 bytes larger than requested, and 16 more if the rest would be too
    // small for a block.
    let lengths = |most: u64| (0..most).filter_map(|slack| rest.checked_sub(slack));
    let is_array = match offset {
        // Behind the number of an array's elements, which have words of 4 bytes, or behind the
        // length of the data that follows.
        8 => {
            let elements = first.saturating_mul(4);
            let is_length = lengths(32).any(|len| len == first);
            first != 0 && (is_length || lengths(16).any(|len| len.is_multiple_of(elements)))
        }
        // Behind the length, the capacity and the reference count of a string of the older C++
        // library.
        24 => {
            let capacity = image.word(chunk.at + 8).unwrap_or(0);
            first <= capacity && lengths(32).any(|len| len.checked_sub(1) == Some(capacity))
        }
        _ => false,
    };
    // The second base of an object has a table of its own.
    let leads_to_file = |word: u64| word.is_multiple_of(8) && image.is_in_file(word);
    let is_base = leads_to_file(first)
        && image
            .word(word)
            .is_some_and(|second| leads_to_file(second) && second != first);
    is_array || is_base
}

/// Returns all words of roots, each with its source and a flag that says whether the word may be a
/// link that malloc left. Variables come first, then stacks and registers, because a variable's
/// name says more about the owner of a block.
pub fn root_words(
    image: &ProcessImage,
    heap: &MallocHeap,
) -> impl Iterator<Item = (PointerSource, u64, bool)> {
    let (stacks, variables): (Vec<_>, Vec<_>) = roots(image, heap)
        .into_iter()
        .partition(|root| root.is_stack);
    let memory = variables.into_iter().chain(stacks).flat_map(|root| {
        let places = (root.range.start..).step_by(8).map(PointerSource::Root);
        let words = places.zip(words(image.bytes(root.range)));
        words.map(move |(at, word)| (at, word, root.is_stack))
    });
    let threads = (0..).zip(&image.threads);
    let registers = threads.flat_map(|(number, thread)| {
        let registers = thread.registers.iter();
        registers.map(move |&word| (PointerSource::Register(number), word, true))
    });
    memory.chain(registers)
}

/// A range of memory that is a root.
struct RootRange {
    range: Range<u64>,
    is_stack: bool,
}

/// Returns the ranges that are roots: writable memory that is not malloc's. Heap memory that could
/// not be walked may hold pointers, so it is a root, too.
fn roots(image: &ProcessImage, heap: &MallocHeap) -> Vec<RootRange> {
    let arenas = heap.arenas.iter().map(MallocArena::range);
    let holes = join_ranges(heap.ranges().chain(arenas).collect());
    let mut stacks: Vec<u64> = image.threads.iter().map(|thread| thread.stack).collect();
    stacks.sort_unstable();
    let mut all = Vec::new();
    let mut add = |range: Range<u64>, is_stack| {
        let range = range.start.next_multiple_of(8)..range.end;
        if !range.is_empty() {
            all.push(RootRange { range, is_stack });
        }
    };
    for region in image.regions().iter().filter(|region| region.is_root()) {
        let range = region.range();
        // Memory below the end of a stack is not part of it, although it is in the same mapping.
        // Where several stacks share one mapping, only the end of the lowest stack is used.
        let around = image.mapping(range.start).unwrap_or(range.clone());
        let first = stacks.partition_point(|&stack| stack < around.start);
        let stack = stacks.get(first).filter(|stack| around.contains(stack));
        let mut start = stack.map_or(range.start, |stack| {
            stack.saturating_sub(RED_ZONE_SIZE).max(range.start)
        });
        let first = holes.partition_point(|hole| hole.end <= start);
        for hole in holes[first..]
            .iter()
            .take_while(|hole| hole.start < range.end)
        {
            add(start..hole.start, stack.is_some());
            start = hole.end;
        }
        add(start..range.end, stack.is_some());
    }
    for range in &heap.unwalked {
        add(range.clone(), false);
    }
    all
}
