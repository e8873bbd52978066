//! Texts that many values share, and their IDs.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// The ID of a text in the table of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(u32);

impl TextId {
    /// The empty text.
    pub const EMPTY: Self = Self(0);
}

/// A table of texts in order of their IDs. Each text is stored once.
#[derive(Debug)]
pub(crate) struct PerlTextTable {
    all: Vec<Box<str>>,
    ids: HashMap<Box<str>, TextId, RandomState>,
}

impl Default for PerlTextTable {
    fn default() -> Self {
        let mut texts = Self {
            all: Vec::new(),
            ids: HashMap::default(),
        };
        texts.id("");
        texts
    }
}

impl PerlTextTable {
    pub(crate) fn id(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = TextId(self.all.len() as u32);
        self.all.push(text.into());
        self.ids.insert(text.into(), id);
        id
    }

    pub(crate) fn get(&self, id: TextId) -> &str {
        &self.all[id.0 as usize]
    }
}
