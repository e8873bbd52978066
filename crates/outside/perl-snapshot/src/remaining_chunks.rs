//! Makes values of the chunks that no value owns: arenas, code of subs, memory of C code, and
//! memory that is not Perl's. Each such value has edges from all memory that points to its chunk.

use std::collections::VecDeque;
use std::ops::Range;

use heapprof_heap::{ChunkUse, ImageThread, MallocHeap, PointerSource, ProcessImage, root_words};
use heapprof_perl::{ArenaType, may_be_slab};
use heapprof_perl_values::{PathPhase, PerlValue, PerlValueKind, ValueStep};

use crate::PerlAddress;
use crate::claims::{ChunkOwner, allocated_bytes, odd_address};
use crate::fill::ValueFiller;
use crate::roots::InterpreterRoots;

/// Makes values of the chunks that no Perl value owns.
pub(crate) struct RemainingChunks<'f, 'a> {
    fill: &'f mut ValueFiller<'a>,
    image: &'a ProcessImage,
    heap: &'a MallocHeap,
    /// Whether the code of subs leads to values. In a perl with threads, most of these values are
    /// in pads instead, and words in the code that look like addresses are outdated.
    has_op_values: bool,
    /// Chunks whose words were not read yet.
    queue: VecDeque<(u32, PerlValueKind)>,
}

impl<'f, 'a> RemainingChunks<'f, 'a> {
    pub(crate) fn new(
        fill: &'f mut ValueFiller<'a>,
        image: &'a ProcessImage,
        heap: &'a MallocHeap,
    ) -> Self {
        Self {
            has_op_values: fill.perl.interpreter_size().is_none(),
            fill,
            image,
            heap,
            queue: VecDeque::new(),
        }
    }

    /// Makes one value for each type of arena: the parts of all such arenas that no other value
    /// uses. These parts count as free.
    pub(crate) fn arenas(&mut self, arenas: &[(PerlAddress, ArenaType)]) {
        let mut sums: Vec<(ArenaType, PerlAddress, u64)> = Vec::new();
        for &(at, of) in arenas {
            let owner = match of {
                ArenaType::Heads => ChunkOwner::Heads,
                _ => ChunkOwner::Itself,
            };
            let chunk = self.fill.claims.find(at);
            let chunk = chunk.and_then(|chunk| self.fill.claims.take(chunk, owner));
            let Some(chunk) = chunk else { continue };
            match sums.iter_mut().find(|sum| sum.0 == of) {
                Some(sum) => sum.2 += allocated_bytes(chunk),
                None => sums.push((of, chunk.at, allocated_bytes(chunk))),
            }
        }
        for (of, at, bytes) in sums {
            let used = match of {
                ArenaType::Heads => std::mem::take(&mut self.fill.heads) * crate::sv::HEAD_SIZE,
                ArenaType::Bodies(of) => {
                    let used = self.fill.used.get_mut(usize::from(of));
                    used.map_or(0, std::mem::take)
                }
                ArenaType::Lists => 0,
            };
            let name = match of {
                ArenaType::Lists => of.name().to_string(),
                of => format!("free {}", of.name()),
            };
            // No edge leads to this address: a pointer into an arena points to a value.
            let at = odd_address(at);
            self.fill
                .builder
                .add_root(PathPhase::Others, "(arenas)", &name, at);
            self.fill.builder.end(PerlValue {
                address: at,
                size: bytes.saturating_sub(used),
                asked: bytes.saturating_sub(used),
                kind: PerlValueKind::Free,
                ..PerlValue::default()
            });
        }
    }

    /// Makes values of the chunks to which Perl values and interpreters lead.
    pub(crate) fn follow_perl(&mut self, interpreters: &[InterpreterRoots]) {
        let seeds = std::mem::take(&mut self.fill.seeds);
        for wanted in [PerlValueKind::Ops, PerlValueKind::Memory] {
            for &(chunk, kind) in seeds.iter().filter(|seed| seed.1 == wanted) {
                self.take(chunk, kind);
            }
        }
        for interpreter in interpreters {
            for (name, chunk) in interpreter.saved_chunks(self.fill) {
                if self.fill.claims.owner(chunk) == ChunkOwner::Unclaimed {
                    let at = self.heap.chunks[chunk as usize].at;
                    let builder = &mut self.fill.builder;
                    builder.add_root(PathPhase::Others, &interpreter.outer, name, at);
                    self.take(chunk, PerlValueKind::Memory);
                }
            }
            for (name, chunk) in interpreter.links(self.fill) {
                // Chunks in the queue have an owner already, and belong to the interpreter, too.
                if self.fill.claims.owner(chunk) == ChunkOwner::Unclaimed {
                    let outer = interpreter.inside("(interpreter)");
                    let at = self.heap.chunks[chunk as usize].at;
                    let builder = &mut self.fill.builder;
                    builder.add_root(PathPhase::Others, &outer, name, at);
                    self.take(chunk, PerlValueKind::Memory);
                }
            }
        }
        self.follow();
    }

    /// Makes values of the chunks to which other pointers of the program lead: in variables of
    /// libraries, on stacks, in registers. `own` lists the address ranges of the interpreters'
    /// variables in order; these were followed already.
    pub(crate) fn follow_others(&mut self, own: &[Range<PerlAddress>]) {
        let (image, heap) = (self.image, self.heap);
        for (source, word, may_be_link) in root_words(image, heap) {
            let Some(chunk) = heap.find_pointed(word, may_be_link) else {
                continue;
            };
            match self.fill.claims.owner(chunk as u32) {
                ChunkOwner::Unclaimed if heap.chunks[chunk].is_in_use() => {
                    let (name, _) = self.holder(source);
                    let at = heap.chunks[chunk].at;
                    let builder = &mut self.fill.builder;
                    builder.add_root(PathPhase::Others, "(not Perl's)", &name, at);
                    self.take(chunk as u32, PerlValueKind::Memory);
                    self.follow();
                }
                ChunkOwner::Heads if self.fill.builder.number(word).is_some() => {
                    self.add_mention(source, own, word);
                }
                ChunkOwner::Value if heap.chunks[chunk].at == word => {
                    if let Some(value) = self.fill.scalar_with(chunk as u32) {
                        self.add_mention(source, own, value);
                    }
                }
                _ => {}
            }
        }
    }

    /// Makes a value a root if a variable of C code leads to it. Variables in the ranges `own`
    /// belong to interpreters, and are left out because they were followed already.
    fn add_mention(
        &mut self,
        source: PointerSource,
        own: &[Range<PerlAddress>],
        value: PerlAddress,
    ) {
        let PointerSource::Root(at) = source else {
            return;
        };
        let next = own.partition_point(|range| range.start <= at);
        if next > 0 && own[next - 1].contains(&at) {
            return;
        }
        let (name, is_lasting) = self.holder(source);
        if is_lasting {
            let builder = &mut self.fill.builder;
            builder.add_root(PathPhase::Mentions, "(C memory)", &name, value);
        }
    }

    /// Makes values of the chunks to which nothing leads.
    pub(crate) fn leftovers(&mut self) {
        for chunk in self.fill.claims.unclaimed_chunks() {
            self.take(chunk, PerlValueKind::Memory);
            self.follow();
        }
        let caches = self.heap.chunks.iter();
        for cache in caches.filter(|chunk| chunk.kind == ChunkUse::Cache) {
            let builder = &mut self.fill.builder;
            builder.add_root(PathPhase::Others, "(malloc)", "caches of threads", cache.at);
            builder.end(PerlValue {
                address: cache.at,
                size: allocated_bytes(cache),
                asked: cache.size,
                kind: PerlValueKind::Memory,
                ..PerlValue::default()
            });
        }
    }

    /// Returns the name of the memory that contains a word, and whether the word is reliable: a
    /// word on a stack or in a register may be old.
    fn holder(&self, source: PointerSource) -> (String, bool) {
        let PointerSource::Root(at) = source else {
            return ("registers".to_string(), false);
        };
        let Some(region) = self.image.region(at) else {
            return ("memory".to_string(), true);
        };
        let has_stack = |thread: &ImageThread| region.range().contains(&thread.stack);
        let is_stack = self.image.threads.iter().any(has_stack) || region.name == "[stack]";
        if is_stack {
            return ("stacks".to_string(), false);
        }
        let place = self.image.place(at);
        let path = place.map_or_else(
            || region.name.clone(),
            |(map, _)| String::from_utf8_lossy(&map.path).into_owned(),
        );
        let name = path.rsplit('/').next().unwrap_or_default();
        match name {
            "" => ("anonymous memory".to_string(), true),
            name => (name.to_string(), true),
        }
    }

    /// Whether the word at an address is the field `op_sv` of an op that is in use. An op in use
    /// has a known type and a function in a mapped file.
    fn is_value_of_op(&self, at: PerlAddress) -> bool {
        const OP_FUNCTION_OFFSET: u64 = 0x10;
        const OP_TYPE_OFFSET: u64 = 0x20;
        const OP_VALUE_OFFSET: u64 = 0x28;
        let op = at.wrapping_sub(OP_VALUE_OFFSET);
        let of_type = self.fill.reader.half(op.wrapping_add(OP_TYPE_OFFSET)) & 0x1ff;
        let function = self.fill.reader.word(op.wrapping_add(OP_FUNCTION_OFFSET));
        of_type < u32::from(self.fill.perl.ops()) && self.image.is_in_file(function)
    }

    /// Takes a chunk that has no owner, and puts it into the queue.
    fn take(&mut self, chunk: u32, kind: PerlValueKind) {
        if self.fill.claims.take(chunk, ChunkOwner::Itself).is_some() {
            self.queue.push_back((chunk, kind));
        }
    }

    /// Makes values of the chunks in the queue, and of the chunks to which these lead.
    fn follow(&mut self) {
        while let Some((number, kind)) = self.queue.pop_front() {
            let chunk = self.heap.chunks[number as usize];
            let step = match kind {
                PerlValueKind::Ops => ValueStep::Ops,
                _ => ValueStep::Memory,
            };
            // The other blocks of a sub's code are arrays and texts.
            let is_slab = may_be_slab(chunk.size as usize);
            let is_text = is_text(self.fill.reader.bytes(chunk.at, chunk.size));
            let words = self.fill.reader.words(chunk.at, chunk.size / 8);
            for (at, word) in (chunk.at..).step_by(8).zip(words) {
                let may_be_link = at + 8 != chunk.at + chunk.size;
                let Some(found) = self.heap.find_pointed(word, may_be_link) else {
                    continue;
                };
                let found = found as u32;
                if found == number {
                    continue;
                }
                let is_value_of_op = kind == PerlValueKind::Ops && self.is_value_of_op(at);
                let builder = &mut self.fill.builder;
                match self.fill.claims.owner(found) {
                    ChunkOwner::Heads => {
                        let counts = match kind {
                            PerlValueKind::Ops if is_slab => self.has_op_values || is_value_of_op,
                            _ => !is_text,
                        };
                        if counts && builder.number(word).is_some() {
                            builder.lead_to(word, ValueStep::Mention, true);
                        }
                    }
                    ChunkOwner::Unclaimed | ChunkOwner::Itself => {
                        builder.lead_to(self.heap.chunks[found as usize].at, step, true);
                        if self.heap.chunks[found as usize].is_in_use() {
                            self.take(found, kind);
                        }
                    }
                    ChunkOwner::Value => {
                        let is_start = self.heap.chunks[found as usize].at == word;
                        if let Some(to) = self.fill.scalar_with(found)
                            && is_start
                            && !is_text
                        {
                            self.fill.builder.lead_to(to, ValueStep::Mention, true);
                        }
                    }
                }
            }
            self.fill.builder.end(PerlValue {
                address: chunk.at,
                size: allocated_bytes(&chunk),
                asked: chunk.size,
                kind,
                ..PerlValue::default()
            });
        }
    }
}

/// Whether a block contains a text. Bytes after the text's end are ignored, because they are old.
/// Short texts do not count, because an address may look like one.
fn is_text(bytes: &[u8]) -> bool {
    const MIN_TEXT_LENGTH: usize = 7;
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    let is_letter =
        |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace() || *byte >= 0x80;
    text.len() >= MIN_TEXT_LENGTH && text.iter().all(is_letter) && std::str::from_utf8(text).is_ok()
}
