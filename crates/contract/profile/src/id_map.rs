//! A map from a file's ids (any 64-bit number except 0) to positions. For dense ids, the usual
//! case, a look-up costs an array read.

use crate::hashing::HashMap;

use crate::parts::hash_table_memory;

const NO_POSITION: u32 = u32::MAX;

#[derive(Default)]
pub(crate) struct IdMap {
    dense: Vec<u32>,
    sparse: HashMap<u64, u32>,
    len: u32,
    /// Whether some entry's id differs from its position plus 1.
    uneven: bool,
}

impl IdMap {
    pub(crate) fn new() -> Self {
        Self {
            dense: Vec::new(),
            sparse: HashMap::default(),
            len: 0,
            uneven: false,
        }
    }

    /// Gives `id` the next position. Returns false if `id` already has one.
    pub(crate) fn push(&mut self, id: u64) -> bool {
        if self.get(id).is_some() {
            return false;
        }
        // The array grows with the number of ids, so that a single huge id costs one map entry and
        // no array.
        if id < u64::from(self.len) * 4 + 1024 {
            let at = id as usize;
            if at >= self.dense.len() {
                self.dense.resize(at + 1, NO_POSITION);
            }
            self.dense[at] = self.len;
        } else {
            self.sparse.insert(id, self.len);
        }
        self.len += 1;
        self.uneven |= id != u64::from(self.len);
        true
    }

    /// Returns the number of ids, if they are 1, 2, 3, ... in this order, as most writers number
    /// them.
    pub(crate) fn sequential_count(&self) -> Option<u32> {
        (!self.uneven).then_some(self.len)
    }

    /// Estimates how many bytes the map takes.
    pub(crate) fn memory(&self) -> u64 {
        let dense = size_of_val(&self.dense[..]) as u64;
        dense + hash_table_memory::<(u64, u32)>(self.sparse.capacity())
    }

    pub(crate) fn get(&self, id: u64) -> Option<u32> {
        match self.dense.get(usize::try_from(id).unwrap_or(usize::MAX)) {
            Some(&at) if at != NO_POSITION => Some(at),
            _ => self.sparse.get(&id).copied(),
        }
    }
}
