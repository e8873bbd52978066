//! Values with their paths and with what each retains: what all questions begin with.

use crate::paths::{MOST_KEYS, Paths, Reached};
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
    pub fn new(values: Values) -> Self {
        Self::with_keys(values, MOST_KEYS)
    }

    /// The same, where the values of a hash with more keys than `most_keys` have one path.
    #[must_use]
    pub fn with_keys(mut values: Values, most_keys: usize) -> Self {
        let paths = Paths::new(&mut values, most_keys);
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
        Described {
            path: self.paths.shown(&self.values, number),
            ..self.named(number)
        }
    }

    /// A value in words, without its path.
    pub(crate) fn named(&self, number: u32) -> Described {
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
            path: String::new(),
        }
    }
}
