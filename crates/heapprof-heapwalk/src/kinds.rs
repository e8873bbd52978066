//! What the blocks are: the kind of content of each, and the name of what its first word leads to.

use std::collections::HashMap;

use crate::content::{Content, content};
use crate::heap::{Chunk, Heap};
use crate::image::Image;

/// No program has blocks of more classes.
const MOST_NAMES: usize = 1 << 16;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// What is in it.
    pub content: Content,
    /// The number of its name; 0 if there is none.
    name: u32,
}

/// Tells what blocks are. Whoever makes it knows names: of classes and functions, by the address
/// that an object's first word holds. Each is asked for once.
pub struct Kinds<'a> {
    image: &'a Image,
    heap: &'a Heap,
    ask: Box<dyn FnMut(u64) -> Option<String> + 'a>,
    /// The number of the name of each address.
    known: HashMap<u64, u32>,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl<'a> Kinds<'a> {
    /// Makes one that asks `ask` for names.
    pub fn new(
        image: &'a Image,
        heap: &'a Heap,
        ask: impl FnMut(u64) -> Option<String> + 'a,
    ) -> Self {
        Self {
            image,
            heap,
            ask: Box::new(ask),
            known: HashMap::new(),
            names: vec![String::new()],
            numbers: HashMap::new(),
        }
    }

    /// What a block is.
    pub fn of(&mut self, chunk: &Chunk) -> Kind {
        let bytes = self.image.bytes(chunk.bytes());
        let content = content(bytes, self.heap, |at| self.image.is_in_file(at));
        let name = match content {
            Content::Object => self.number(self.image.word(chunk.at).unwrap_or(0)),
            _ => 0,
        };
        Kind { content, name }
    }

    fn number(&mut self, address: u64) -> u32 {
        if let Some(&known) = self.known.get(&address) {
            return known;
        }
        let is_full = self.names.len() >= MOST_NAMES;
        let number = match (self.ask)(address).filter(|_| !is_full) {
            None => 0,
            Some(name) => *self.numbers.entry(name).or_insert_with_key(|name| {
                self.names.push(name.clone());
                self.names.len() as u32 - 1
            }),
        };
        self.known.insert(address, number);
        number
    }

    /// What a block is, in words: its name, or its kind of content.
    #[must_use]
    pub fn name(&self, kind: Kind) -> &str {
        match kind.name {
            0 => kind.content.name(),
            number => &self.names[number as usize],
        }
    }
}
