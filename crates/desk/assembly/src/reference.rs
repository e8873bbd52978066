//! What instructions refer to: a place, and its name if it has one.

use std::collections::HashMap;
use std::rc::Rc;

/// A place that an instruction refers to by its distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeReference {
    /// The place that a call or jump leads to.
    Branch(u64),
    /// The place in memory that is read, written, or whose address is taken.
    Memory(u64),
}

impl CodeReference {
    pub(crate) fn address(self) -> u64 {
        match self {
            Self::Branch(address) | Self::Memory(address) => address,
        }
    }
}

/// Names by virtual address.
#[derive(Clone)]
pub(crate) struct TargetNames(Rc<HashMap<u64, String>>);

impl TargetNames {
    pub(crate) fn new(names: HashMap<u64, String>) -> Self {
        Self(Rc::new(names))
    }

    /// Returns the name of a place.
    pub(crate) fn get(&self, address: u64) -> Option<&str> {
        self.0.get(&address).map(String::as_str)
    }
}

/// Returns names by address, for tests.
#[cfg(test)]
pub(crate) fn named(names: &[(u64, &str)]) -> HashMap<u64, String> {
    let names = names.iter();
    names
        .map(|(address, name)| (*address, (*name).to_string()))
        .collect()
}
