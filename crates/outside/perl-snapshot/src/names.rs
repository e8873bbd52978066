//! Lists of the names of variables, which closures of the same sub share.

use std::collections::HashMap;

use heapprof_perl_values::TextId;

use crate::PerlAddress;

/// The lists of names that were read.
#[derive(Default)]
pub(crate) struct PadNameLists {
    numbers: HashMap<PerlAddress, u32>,
    lists: Vec<Vec<TextId>>,
}

impl PadNameLists {
    /// The number of a list that was read.
    pub(crate) fn number(&self, list: PerlAddress) -> Option<u32> {
        self.numbers.get(&list).copied()
    }

    /// Begins a list, which must be the next one to be ended. Returns its number.
    pub(crate) fn begin(&mut self, list: PerlAddress) -> u32 {
        let number = self.lists.len() as u32;
        self.numbers.insert(list, number);
        number
    }

    pub(crate) fn end(&mut self, names: Vec<TextId>) {
        self.lists.push(names);
    }

    /// Returns the name of a variable by its place in a pad; empty if it has none.
    pub(crate) fn variable_name(&self, list: u32, place: u32) -> TextId {
        let list = self.lists.get(list as usize);
        let name = list.and_then(|list| list.get(place as usize));
        name.copied().unwrap_or(TextId::EMPTY)
    }
}
