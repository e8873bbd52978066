//! Interned text: each text of a profile is stored once and compared as a number.

use std::hash::BuildHasher;

use crate::hashing::RandomState;
use hashbrown::HashTable;

use crate::parts::{hash_table_memory, range};

/// Id of a text in one [`StringTable`]. Within a table, equal ids mean equal texts, and equal texts
/// have equal ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub(crate) u32);

impl StringId {
    /// Id of the empty text, in every table.
    pub const EMPTY: StringId = StringId(0);

    /// Returns the position of the text in its table, from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether this is the empty text.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// All text of a profile, each text once; the first one is empty.
#[derive(Clone)]
pub struct StringTable {
    text: String,
    end: Vec<usize>,
    index: HashTable<u32>,
    // The hasher is seeded for each table, so that a hostile profile can't choose names that
    // collide.
    hasher: RandomState,
}

impl StringTable {
    /// Makes a table that holds only the empty text.
    pub fn new() -> Self {
        let mut table = Self {
            text: String::new(),
            end: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
        };
        table.intern("");
        table
    }

    /// Returns the id of `text`, which is added if it is new.
    ///
    /// ```
    /// use heapprof_profile::{Label, Profile};
    /// let mut profile = Profile::default();
    /// let key = profile.strings.intern("thread");
    /// assert_eq!(profile.strings.intern("thread"), key);
    /// assert_eq!(profile.strings.find("thread"), Some(key));
    /// assert_eq!(profile.text(key), "thread");
    ///
    /// // Equal sets of labels are stored once, too.
    /// let str = profile.strings.intern("main");
    /// let label = Label { key, str, ..Label::default() };
    /// let set = profile.label_sets.intern(&mut [label], &profile.strings);
    /// assert_eq!(profile.label_sets.intern(&mut [label], &profile.strings), set);
    /// assert_eq!(profile.label_sets.get(set), [label]);
    /// ```
    ///
    /// # Panics
    /// When the table would hold more than 2^32 texts.
    pub fn intern(&mut self, text: &str) -> StringId {
        let hash = self.hasher.hash_one(text);
        let (all, end) = (&self.text, &self.end);
        if let Some(&id) = self.index.find(hash, |&id| slice(all, end, id) == text) {
            return StringId(id);
        }
        let id = u32::try_from(self.end.len()).expect("fewer than 2^32 texts");
        self.text.push_str(text);
        self.end.push(self.text.len());
        let (all, end, hasher) = (&self.text, &self.end, &self.hasher);
        self.index
            .insert_unique(hash, id, |&id| hasher.hash_one(slice(all, end, id)));
        StringId(id)
    }

    /// Returns the id of `text`, if the table holds it.
    pub fn find(&self, text: &str) -> Option<StringId> {
        let hash = self.hasher.hash_one(text);
        self.index
            .find(hash, |&id| slice(&self.text, &self.end, id) == text)
            .map(|&id| StringId(id))
    }

    /// Returns the text with the id `id`.
    pub fn get(&self, id: StringId) -> &str {
        slice(&self.text, &self.end, id.0)
    }

    /// Returns the number of texts, including the empty one.
    pub fn len(&self) -> usize {
        self.end.len()
    }

    /// Estimates how many bytes the table takes.
    pub(crate) fn memory(&self) -> u64 {
        let texts = self.text.len() + size_of_val(&self.end[..]);
        texts as u64 + hash_table_memory::<u32>(self.index.capacity())
    }

    /// Always false, because the empty text is always there.
    pub fn is_empty(&self) -> bool {
        self.end.is_empty()
    }

    /// Returns all texts in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.end.len() as u32).map(|id| slice(&self.text, &self.end, id))
    }
}

fn slice<'a>(text: &'a str, end: &[usize], id: u32) -> &'a str {
    &text[range(end, id as usize)]
}

impl Default for StringTable {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for StringTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
