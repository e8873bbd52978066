//! The chunks that are no part of a value: arenas, code of subs, memory of C code, and what is not
//! Perl's. Each becomes a value of its own kind, to which all that points there leads.

use std::collections::VecDeque;
use std::ops::Range;

use heapprof_heapwalk::{Heap, Image, Source, Thread, Use, root_words};
use heapprof_perl::{Type, may_be_slab};
use heapprof_perl_heap::{Kind, Phase, Step, Value};

use crate::Address;
use crate::claims::{Owner, apart, whole};
use crate::fill::Fill;
use crate::roots::Roots;

/// Makes values of the rest.
pub(crate) struct Rest<'f, 'a> {
    fill: &'f mut Fill<'a>,
    image: &'a Image,
    heap: &'a Heap,
    /// Whether code of subs leads to values. With threads most are in pads instead, and what looks
    /// like an address is old.
    has_op_values: bool,
    /// Chunks whose words were not looked at yet.
    queue: VecDeque<(u32, Kind)>,
}

impl<'f, 'a> Rest<'f, 'a> {
    pub(crate) fn new(fill: &'f mut Fill<'a>, image: &'a Image, heap: &'a Heap) -> Self {
        Self {
            has_op_values: fill.perl.interpreter_size().is_none(),
            fill,
            image,
            heap,
            queue: VecDeque::new(),
        }
    }

    /// Takes the arenas of all interpreters. What no value has of them is free.
    pub(crate) fn arenas(&mut self, arenas: &[(Address, Type)]) {
        let mut sums: Vec<(Type, Address, u64)> = Vec::new();
        for &(at, of) in arenas {
            let owner = match of {
                Type::Heads => Owner::Heads,
                _ => Owner::Itself,
            };
            let chunk = self.fill.claims.find(at);
            let chunk = chunk.and_then(|chunk| self.fill.claims.take(chunk, owner));
            let Some(chunk) = chunk else { continue };
            match sums.iter_mut().find(|sum| sum.0 == of) {
                Some(sum) => sum.2 += whole(chunk),
                None => sums.push((of, chunk.at, whole(chunk))),
            }
        }
        for (of, at, bytes) in sums {
            let used = match of {
                Type::Heads => std::mem::take(&mut self.fill.heads) * crate::sv::HEAD,
                Type::Bodies(of) => {
                    let used = self.fill.used.get_mut(usize::from(of));
                    used.map_or(0, std::mem::take)
                }
                Type::Lists => 0,
            };
            let name = match of {
                Type::Lists => of.name().to_string(),
                of => format!("free {}", of.name()),
            };
            // Nothing leads there: what points into an arena points to a value.
            let at = apart(at);
            self.fill
                .builder
                .add_root(Phase::Others, "(arenas)", &name, at);
            self.fill.builder.end(Value {
                address: at,
                size: bytes.saturating_sub(used),
                asked: bytes.saturating_sub(used),
                kind: Kind::Free,
                ..Value::default()
            });
        }
    }

    /// Follows what values and interpreters lead to.
    pub(crate) fn follow_perl(&mut self, interpreters: &[Roots]) {
        let seeds = std::mem::take(&mut self.fill.seeds);
        for wanted in [Kind::Ops, Kind::Memory] {
            for &(chunk, kind) in seeds.iter().filter(|seed| seed.1 == wanted) {
                self.take(chunk, kind);
            }
        }
        for interpreter in interpreters {
            for (name, chunk) in interpreter.put_aside(self.fill) {
                if self.fill.claims.owner(chunk) == Owner::Nobody {
                    let at = self.heap.chunks[chunk as usize].at;
                    let builder = &mut self.fill.builder;
                    builder.add_root(Phase::Others, &interpreter.outer, name, at);
                    self.take(chunk, Kind::Memory);
                }
            }
            for (name, chunk) in interpreter.links(self.fill) {
                // What is in the queue was taken already, and is the interpreter's, too.
                if self.fill.claims.owner(chunk) == Owner::Nobody {
                    let outer = interpreter.inside("(interpreter)");
                    let at = self.heap.chunks[chunk as usize].at;
                    let builder = &mut self.fill.builder;
                    builder.add_root(Phase::Others, &outer, name, at);
                    self.take(chunk, Kind::Memory);
                }
            }
        }
        self.follow();
    }

    /// Follows what else of the program leads to chunks: variables of libraries, stacks, registers.
    /// `own` are the places of the interpreters' variables in order, which were followed already.
    pub(crate) fn follow_others(&mut self, own: &[Range<Address>]) {
        let (image, heap) = (self.image, self.heap);
        for (source, word, may_be_link) in root_words(image, heap) {
            let Some(chunk) = heap.find_pointed(word, may_be_link) else {
                continue;
            };
            match self.fill.claims.owner(chunk as u32) {
                Owner::Nobody if heap.chunks[chunk].is_in_use() => {
                    let (name, _) = self.holder(source);
                    let at = heap.chunks[chunk].at;
                    let builder = &mut self.fill.builder;
                    builder.add_root(Phase::Others, "(not Perl's)", &name, at);
                    self.take(chunk as u32, Kind::Memory);
                    self.follow();
                }
                Owner::Heads if self.fill.builder.number(word).is_some() => {
                    self.add_mention(source, own, word);
                }
                Owner::Value if heap.chunks[chunk].at == word => {
                    if let Some(value) = self.fill.scalar_with(chunk as u32) {
                        self.add_mention(source, own, value);
                    }
                }
                _ => {}
            }
        }
    }

    /// Makes a value a root that only variables of C code lead to. The `own` ones of interpreters
    /// were followed already.
    fn add_mention(&mut self, source: Source, own: &[Range<Address>], value: Address) {
        let Source::Root(at) = source else { return };
        let next = own.partition_point(|range| range.start <= at);
        if next > 0 && own[next - 1].contains(&at) {
            return;
        }
        let (name, is_lasting) = self.holder(source);
        if is_lasting {
            let builder = &mut self.fill.builder;
            builder.add_root(Phase::Mentions, "(C memory)", &name, value);
        }
    }

    /// Makes values of the chunks to which nothing leads.
    pub(crate) fn leftovers(&mut self) {
        for chunk in self.fill.claims.left() {
            self.take(chunk, Kind::Memory);
            self.follow();
        }
        let caches = self.heap.chunks.iter();
        for cache in caches.filter(|chunk| chunk.kind == Use::Cache) {
            let builder = &mut self.fill.builder;
            builder.add_root(Phase::Others, "(malloc)", "caches of threads", cache.at);
            builder.end(Value {
                address: cache.at,
                size: whole(cache),
                asked: cache.size,
                kind: Kind::Memory,
                ..Value::default()
            });
        }
    }

    /// The name of where a word is, and whether it lasts: what is on a stack may be old.
    fn holder(&self, source: Source) -> (String, bool) {
        let Source::Root(at) = source else {
            return ("registers".to_string(), false);
        };
        let Some(region) = self.image.region(at) else {
            return ("memory".to_string(), true);
        };
        let has_stack = |thread: &Thread| region.range().contains(&thread.stack);
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
            "" => ("memory of no file".to_string(), true),
            name => (name.to_string(), true),
        }
    }

    /// Whether an address is where an op has its value (`op_sv`): the op has a function, and is in
    /// use.
    fn is_value_of_op(&self, at: Address) -> bool {
        const FUNCTION: u64 = 0x10;
        const TYPE: u64 = 0x20;
        const VALUE: u64 = 0x28;
        let op = at.wrapping_sub(VALUE);
        let of_type = self.fill.reader.half(op.wrapping_add(TYPE)) & 0x1ff;
        let function = self.fill.reader.word(op.wrapping_add(FUNCTION));
        of_type < u32::from(self.fill.perl.ops()) && self.image.is_in_file(function)
    }

    /// Takes a chunk that is nobody's.
    fn take(&mut self, chunk: u32, kind: Kind) {
        if self.fill.claims.take(chunk, Owner::Itself).is_some() {
            self.queue.push_back((chunk, kind));
        }
    }

    /// Makes values of the chunks in the queue, and of what they lead to.
    fn follow(&mut self) {
        while let Some((number, kind)) = self.queue.pop_front() {
            let chunk = self.heap.chunks[number as usize];
            let step = match kind {
                Kind::Ops => Step::Ops,
                _ => Step::Memory,
            };
            // Other blocks of a sub's code are arrays and texts.
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
                let is_value_of_op = kind == Kind::Ops && self.is_value_of_op(at);
                let builder = &mut self.fill.builder;
                match self.fill.claims.owner(found) {
                    Owner::Heads => {
                        let counts = match kind {
                            Kind::Ops if is_slab => self.has_op_values || is_value_of_op,
                            _ => !is_text,
                        };
                        if counts && builder.number(word).is_some() {
                            builder.lead_to(word, Step::Mention, true);
                        }
                    }
                    Owner::Nobody | Owner::Itself => {
                        builder.lead_to(self.heap.chunks[found as usize].at, step, true);
                        if self.heap.chunks[found as usize].is_in_use() {
                            self.take(found, kind);
                        }
                    }
                    Owner::Value => {
                        let is_start = self.heap.chunks[found as usize].at == word;
                        if let Some(to) = self.fill.scalar_with(found)
                            && is_start
                            && !is_text
                        {
                            self.fill.builder.lead_to(to, Step::Mention, true);
                        }
                    }
                }
            }
            self.fill.builder.end(Value {
                address: chunk.at,
                size: whole(&chunk),
                asked: chunk.size,
                kind,
                ..Value::default()
            });
        }
    }
}

/// Whether a block has a text. What is behind its end is old. The bytes of an address may look like
/// a short one.
fn is_text(bytes: &[u8]) -> bool {
    const LEAST: usize = 7;
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    let is_letter =
        |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace() || *byte >= 0x80;
    text.len() >= LEAST && text.iter().all(is_letter) && std::str::from_utf8(text).is_ok()
}
