//! Values with their paths and with what each retains: what all questions begin with.

use crate::paths::{Paths, Reached};
use crate::profile::{of_paths, retained};
use crate::text::TextId;
use crate::values::{Value, Values};
use heapprof_profile::Profile;

/// Values with their paths and with what each retains.
#[derive(Debug)]
pub struct Found {
    pub(crate) values: Values,
    pub(crate) paths: Paths,
    pub(crate) retained: Vec<u64>,
}

/// A value in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Where it was.
    pub address: u64,
    /// The name of its kind.
    pub kind: &'static str,
    /// Its class; empty if it has none.
    pub class: String,
    /// Its name, if it is a symbol, a sub or a symbol table; empty for others.
    pub name: String,
    /// How many references to it are counted.
    pub references: u32,
    /// Its bytes.
    pub size: u64,
    /// What would go with it, in bytes, with its own.
    pub retained: u64,
    /// Its path.
    pub path: String,
}

impl Found {
    /// Finds the paths of values, and what each retains.
    #[must_use]
    pub fn new(mut values: Values) -> Self {
        let paths = Paths::new(&mut values);
        let retained = retained(&values, &paths, |value: &Value| value.size);
        Self {
            values,
            paths,
            retained,
        }
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Their profile: [`profile()`](crate::profile()).
    #[must_use]
    pub fn profile(&self) -> Profile {
        of_paths(&self.values, &self.paths, &self.retained)
    }

    pub(crate) fn is_leaked(&self, number: u32) -> bool {
        self.paths.reached(number) == Reached::Leaked
    }

    /// A value in words.
    #[must_use]
    pub fn described(&self, number: u32) -> Described {
        let value = self.values.get(number);
        let text = |id: TextId| self.values.text(id).to_string();
        Described {
            address: value.address,
            kind: value.kind.name(),
            class: text(self.values.class(value)),
            name: text(value.name),
            references: value.references,
            size: value.size,
            retained: self.retained[number as usize],
            path: self.paths.shown(&self.values, number),
        }
    }
}
