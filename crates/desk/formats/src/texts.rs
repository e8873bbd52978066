//! Stores the texts of a file (frames, names, paths) once each, and numbers them.

use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Texts by number.
#[derive(Default)]
pub(crate) struct TextTable {
    text: String,
    end: Vec<usize>,
    index: HashTable<u32>,
    hasher: RandomState,
}

impl TextTable {
    /// Returns the number of a text. A new text is added; `None` if there are too many texts.
    pub(crate) fn intern(&mut self, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        let same = |&i: &u32| self.get(i) == Some(text);
        if let Some(&number) = self.index.find(hash, same) {
            return Some(number);
        }
        let number = u32::try_from(self.end.len()).ok()?;
        self.push(text);
        let (all, end) = (&self.text, &self.end);
        self.index.insert_unique(hash, number, |&i| {
            self.hasher.hash_one(&all[range(end, i as usize)])
        });
        Some(number)
    }

    /// Adds a text under the next number without searching for an equal text. This is for tables in
    /// which the file numbers the entries.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.end.push(self.text.len());
    }

    /// Returns the text with this number.
    pub(crate) fn get(&self, number: u32) -> Option<&str> {
        let number = number as usize;
        (number < self.end.len()).then(|| &self.text[range(&self.end, number)])
    }

    /// Estimates how many bytes the texts take.
    pub(crate) fn memory(&self) -> u64 {
        let index = self.index.capacity() * 2 * size_of::<u32>();
        (self.text.len() + size_of_val(&self.end[..]) + index) as u64
    }

    /// Returns the number of texts.
    pub(crate) fn len(&self) -> usize {
        self.end.len()
    }
}

fn range(end: &[usize], i: usize) -> Range<usize> {
    let start = if i == 0 { 0 } else { end[i - 1] };
    start..end[i]
}
