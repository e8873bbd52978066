//! The values of a program with their paths and retained bytes, from which all reports are made.

use crate::paths::{MAX_NAMED_KEYS, Reachability, ValuePaths};
use crate::profile::{profile_of_paths, retained_sizes};
use crate::text::TextId;
use crate::values::{PerlValue, ValueGraph};
use heapprof_profile::Profile;

/// Values with their paths and retained bytes.
#[derive(Debug)]
pub struct PerlValueAnalysis {
    pub(crate) values: ValueGraph,
    pub(crate) paths: ValuePaths,
    pub(crate) retained: Vec<u64>,
}

/// A description of a value, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueDescription {
    /// Address of the value.
    pub address: u64,
    /// Name of the value's kind.
    pub kind: &'static str,
    /// The value's class; empty if it has none.
    pub class: String,
    /// Name of the symbol, sub or symbol table; empty for other values.
    pub name: String,
    /// The reference count.
    pub references: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that would be freed with the value, including its own.
    pub retained: u64,
    /// The value's path.
    pub path: String,
}

impl PerlValueAnalysis {
    /// Computes the path and the retained bytes of each value.
    #[must_use]
    pub fn new(values: ValueGraph) -> Self {
        Self::with_keys(values, MAX_NAMED_KEYS)
    }

    /// Computes the path and the retained bytes of each value. All values of a hash with more than
    /// `most_keys` keys share one path.
    #[must_use]
    pub fn with_keys(mut values: ValueGraph, most_keys: usize) -> Self {
        let paths = ValuePaths::new(&mut values, most_keys);
        let retained = retained_sizes(&values, &paths, |value: &PerlValue| value.size);
        Self {
            values,
            paths,
            retained,
        }
    }

    /// Returns the graph of values.
    #[must_use]
    pub fn values(&self) -> &ValueGraph {
        &self.values
    }

    /// Makes a profile of the values: see [`profile()`](crate::profile()).
    #[must_use]
    pub fn profile(&self) -> Profile {
        profile_of_paths(&self.values, &self.paths, &self.retained)
    }

    pub(crate) fn is_leaked(&self, number: u32) -> bool {
        self.paths.reachability(number) == Reachability::Leaked
    }

    /// Describes a value for reports.
    #[must_use]
    pub fn describe(&self, number: u32) -> ValueDescription {
        ValueDescription {
            path: self.paths.path_text(&self.values, number),
            ..self.describe_without_path(number)
        }
    }

    /// Describes a value for reports, without its path.
    pub(crate) fn describe_without_path(&self, number: u32) -> ValueDescription {
        let value = self.values.get(number);
        let text = |id: TextId| self.values.text(id).to_string();
        ValueDescription {
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
