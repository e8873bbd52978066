//! Lists of variable names. Closures of one sub share a list.

use std::collections::HashMap;

use heapprof_perl_values::TextId;

use crate::PerlAddress;

/// The lists of variable names that were read so far.
#[derive(Default)]
pub(crate) struct PadNameLists {
    numbers: HashMap<PerlAddress, u32>,
    lists: Vec<Vec<TextId>>,
}

impl PadNameLists {
    /// Returns the number of the list at an address, if it was read.
    pub(crate) fn number(&self, list: PerlAddress) -> Option<u32> {
        self.numbers.get(&list).copied()
    }

    /// Begins to read the list at an address. Returns its number. [`end`](Self::end) must be called
    /// before the next list is begun.
    pub(crate) fn begin(&mut self, list: PerlAddress) -> u32 {
        let number = self.lists.len() as u32;
        self.numbers.insert(list, number);
        number
    }

    pub(crate) fn end(&mut self, names: Vec<TextId>) {
        self.lists.push(names);
    }

    /// Returns the name of a variable by its index in a pad; empty if it has no name.
    pub(crate) fn variable_name(&self, list: u32, place: u32) -> TextId {
        let list = self.lists.get(list as usize);
        let name = list.and_then(|list| list.get(place as usize));
        name.copied().unwrap_or(TextId::EMPTY)
    }
}
