//! Classifies blocks: by the kind of content, and by the class or function to which the first word
//! leads.

use std::collections::HashMap;

use crate::content::{BlockContent, content};
use crate::heap::{HeapChunk, MallocHeap};
use crate::image::ProcessImage;

/// Maximum number of names; no program has blocks of more classes.
const MAX_NAMES: usize = 1 << 16;

/// The kind of a block: its content, and its name if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKind {
    /// The kind of data in the block.
    pub content: BlockContent,
    /// Number of the block's name; 0 if it has none.
    name: u32,
}

/// Classifies blocks. The caller passes a function that returns the name of the class or function
/// for the address in an object's first word. The function is called once for each address.
pub struct BlockKinds<'a> {
    image: &'a ProcessImage,
    heap: &'a MallocHeap,
    ask: Box<dyn FnMut(u64) -> Option<String> + 'a>,
    /// For each address that was passed to `ask`, the number of the name that `ask` returned; 0 if
    /// it returned none.
    known_names: HashMap<u64, u32>,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl<'a> BlockKinds<'a> {
    /// Creates a classifier that calls `ask` for names.
    pub fn new(
        image: &'a ProcessImage,
        heap: &'a MallocHeap,
        ask: impl FnMut(u64) -> Option<String> + 'a,
    ) -> Self {
        Self {
            image,
            heap,
            ask: Box::new(ask),
            known_names: HashMap::new(),
            names: vec![String::new()],
            numbers: HashMap::new(),
        }
    }

    /// Classifies a block.
    pub fn classify(&mut self, chunk: &HeapChunk) -> BlockKind {
        let bytes = self.image.bytes(chunk.bytes());
        let content = content(bytes, self.heap, |at| self.image.is_in_file(at));
        let name = match content {
            BlockContent::Object => self.number(self.image.word(chunk.at).unwrap_or(0)),
            _ => 0,
        };
        BlockKind { content, name }
    }

    fn number(&mut self, address: u64) -> u32 {
        if let Some(&known) = self.known_names.get(&address) {
            return known;
        }
        let is_full = self.names.len() >= MAX_NAMES;
        let number = match (self.ask)(address).filter(|_| !is_full) {
            None => 0,
            Some(name) => *self.numbers.entry(name).or_insert_with_key(|name| {
                self.names.push(name.clone());
                self.names.len() as u32 - 1
            }),
        };
        self.known_names.insert(address, number);
        number
    }

    /// Returns the name of a kind: the class or function, or else the kind of content.
    #[must_use]
    pub fn name(&self, kind: BlockKind) -> &str {
        match kind.name {
            0 => kind.content.name(),
            number => &self.names[number as usize],
        }
    }
}
