//! Which chunks can be reached, and from where.
//!
//! Roots are the registers of all threads, their stacks, and all memory that can be written and is
//! not malloc's: variables, thread-local memory, the program's own mappings. A chunk is *reached*
//! if a pointer to its beginning is in a root or in a chunk that is reached. It is *maybe* reached
//! if only pointers into its middle lead there. What else is in use has leaked: *directly* if
//! nothing leads there, *indirectly* if only what has leaked does. Three kinds of pointers into the
//! middle count as such to the beginning, as in valgrind: behind the length of a C++ array or
//! string, and to the second base of a C++ object.

use std::ops::Range;

use crate::arena::Arena;
use crate::heap::{Chunk, Heap, Kind};
use crate::image::{Image, Region, words};

/// Below the end of a stack, a function may use so many bytes (the red zone of the x86-64 ABI).
const RED_ZONE: u64 = 128;

/// What is known of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// malloc has it.
    #[default]
    Free,
    /// Nothing leads there.
    Leaked,
    /// Only what has leaked leads there.
    Indirect,
    /// Only pointers into its middle lead there.
    Maybe,
    /// It can be reached.
    Reached,
}

impl State {
    /// Its name in reports.
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

/// What leads to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing.
    Nothing,
    /// A word of memory that is a root, by its address.
    Root(u64),
    /// A register of a thread, by the thread's number among all.
    Register(u32),
    /// Another chunk, by its number.
    Chunk(u32),
}

/// What is known of each chunk.
#[derive(Clone, Debug)]
pub struct Marks {
    /// By the number of the chunk.
    pub states: Vec<State>,
    /// What led there first.
    pub sources: Vec<Source>,
    /// Bytes of roots.
    pub roots: u64,
}

impl Marks {
    /// Marks the chunks of a heap.
    #[must_use]
    pub fn new(image: &Image, heap: &Heap) -> Self {
        let initial = |chunk: &Chunk| match chunk.kind {
            Kind::InUse => State::Leaked,
            Kind::Cache => State::Reached,
            _ => State::Free,
        };
        let mut marker = Marker {
            image,
            heap,
            states: heap.chunks.iter().map(initial).collect(),
            sources: vec![Source::Nothing; heap.chunks.len()],
            queue: Vec::new(),
            maybe: Vec::new(),
        };
        for (number, thread) in (0..).zip(&image.threads) {
            for &register in &thread.registers {
                marker.see(register, Source::Register(number));
            }
        }
        let mut bytes = 0;
        for range in roots(image, heap) {
            bytes += range.end - range.start;
            for (at, word) in (range.start..).step_by(8).zip(words(image.bytes(range))) {
                marker.see(word, Source::Root(at));
            }
        }
        marker.follow(State::Reached);
        let maybe = std::mem::take(&mut marker.maybe);
        for (number, source) in maybe {
            marker.reach(number, State::Maybe, source);
        }
        marker.follow(State::Maybe);
        marker.divide_leaks();
        Self {
            states: marker.states,
            sources: marker.sources,
            roots: bytes,
        }
    }
}

struct Marker<'a> {
    image: &'a Image,
    heap: &'a Heap,
    states: Vec<State>,
    sources: Vec<Source>,
    /// Chunks whose words were not looked at yet.
    queue: Vec<u32>,
    /// Chunks into whose middle something leads that is reached.
    maybe: Vec<(u32, Source)>,
}

impl Marker<'_> {
    /// Looks at a word that is in something that is reached.
    fn see(&mut self, word: u64, source: Source) {
        let Some(found) = self.heap.find(word) else {
            return;
        };
        let chunk = &self.heap.chunks[found];
        if !chunk.is_in_use() || self.states[found] == State::Reached {
            return;
        }
        let number = found as u32;
        match is_whole(self.image, chunk, word) {
            true => self.reach(number, State::Reached, source),
            false => self.maybe.push((number, source)),
        }
    }

    fn reach(&mut self, number: u32, state: State, source: Source) {
        let at = number as usize;
        if self.states[at] < state {
            self.states[at] = state;
            self.sources[at] = source;
            self.queue.push(number);
        }
    }

    /// Looks at the words of all chunks of this state that were not looked at.
    fn follow(&mut self, state: State) {
        let mut done = 0;
        // In order, so that what led to a chunk first is near to a root.
        while done < self.queue.len() {
            let number = self.queue[done];
            done += 1;
            let chunk = self.heap.chunks[number as usize];
            let source = Source::Chunk(number);
            for piece in pieces(self.image, chunk.at..chunk.at + chunk.size) {
                for word in words(piece) {
                    match state {
                        State::Reached => self.see(word, source),
                        _ => self.see_maybe(word, source),
                    }
                }
            }
        }
        self.queue.clear();
    }

    /// Looks at a word of a chunk that is maybe reached: what it leads to is that, too.
    fn see_maybe(&mut self, word: u64, source: Source) {
        if let Some(found) = self.heap.find(word)
            && self.heap.chunks[found].is_in_use()
        {
            self.reach(found as u32, State::Maybe, source);
        }
    }

    /// Tells what has leaked directly from what only that leads to.
    fn divide_leaks(&mut self) {
        let mut is_done = vec![false; self.states.len()];
        for first in 0..self.states.len() {
            if self.states[first] != State::Leaked || is_done[first] {
                continue;
            }
            is_done[first] = true;
            self.queue.push(first as u32);
            while let Some(number) = self.queue.pop() {
                let chunk = self.heap.chunks[number as usize];
                for piece in pieces(self.image, chunk.at..chunk.at + chunk.size) {
                    for word in words(piece) {
                        let Some(found) = self.heap.find(word) else {
                            continue;
                        };
                        if found == first || found == number as usize {
                            continue;
                        }
                        if self.states[found] == State::Leaked {
                            self.states[found] = State::Indirect;
                            self.sources[found] = Source::Chunk(number);
                            if !is_done[found] {
                                is_done[found] = true;
                                self.queue.push(found as u32);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The bytes of a range, piece by piece: pages that were never touched are not there.
pub(crate) fn pieces(image: &Image, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        while at < range.end {
            let bytes = image.bytes(at..range.end);
            if !bytes.is_empty() {
                at += bytes.len() as u64;
                return Some(bytes);
            }
            // The next piece that is there.
            let next = image.regions().partition_point(|region| region.start <= at);
            at = image
                .regions()
                .get(next)
                .map_or(range.end, |region| region.start);
        }
        None
    })
}

/// Whether a pointer stands for a whole chunk, although it may lead into its middle.
fn is_whole(image: &Image, chunk: &Chunk, word: u64) -> bool {
    let offset = word - chunk.at;
    if offset == 0 {
        return true;
    }
    if !offset.is_multiple_of(8) || offset >= chunk.size {
        return false;
    }
    let first = image.word(chunk.at).unwrap_or(0);
    // Behind the number of an array's elements, or the length of a text.
    let rest = chunk.size - 8;
    let is_array = offset == 8 && first != 0 && first <= rest && {
        // malloc may give some bytes more than were asked for.
        (0..24).any(|slack| rest >= slack && (rest - slack).is_multiple_of(first))
    };
    // The second base of an object has a table of its own.
    let leads_to_file = |word: u64| word.is_multiple_of(8) && image.is_in_file(word);
    let is_base = offset.is_multiple_of(8)
        && leads_to_file(first)
        && image
            .word(word)
            .is_some_and(|second| leads_to_file(second) && second != first);
    is_array || is_base
}

fn is_root(region: &Region) -> bool {
    region.is_writable && !region.is_own
}

/// All words of roots: of registers, and of memory that is one.
pub(crate) fn root_words<'a>(image: &'a Image, heap: &'a Heap) -> impl Iterator<Item = u64> + 'a {
    let registers = image
        .threads
        .iter()
        .flat_map(|thread| thread.registers.iter().copied());
    let memory = roots(image, heap)
        .into_iter()
        .flat_map(|range| words(image.bytes(range)));
    registers.chain(memory)
}

/// The ranges that are roots: what can be written and is not malloc's.
fn roots(image: &Image, heap: &Heap) -> Vec<Range<u64>> {
    let mut holes: Vec<Range<u64>> = heap.ranges().collect();
    // What could not be walked may hold pointers, so it is a root.
    let unwalked = &heap.unwalked;
    holes.extend(heap.arenas.iter().map(Arena::range));
    let stacks: Vec<u64> = image.threads.iter().map(|thread| thread.stack).collect();
    let mut all = Vec::new();
    for region in image.regions().iter().filter(|region| is_root(region)) {
        let range = region.range();
        let mut start = range.start;
        // A thread's stack begins above what it does not use.
        if let Some(stack) = stacks.iter().filter(|stack| range.contains(*stack)).min() {
            start = stack.saturating_sub(RED_ZONE).max(start);
        }
        let mut inside: Vec<Range<u64>> = holes
            .iter()
            .filter(|hole| hole.start < range.end && hole.end > start)
            .cloned()
            .collect();
        inside.sort_by_key(|hole| hole.start);
        for hole in inside {
            if start < hole.start {
                all.push(start..hole.start);
            }
            start = start.max(hole.end);
        }
        if start < range.end {
            all.push(start..range.end);
        }
    }
    all.extend(unwalked.iter().cloned());
    for range in &mut all {
        range.start = range.start.next_multiple_of(8);
    }
    all.retain(|range| range.start < range.end);
    all
}
