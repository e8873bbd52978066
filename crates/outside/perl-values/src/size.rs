//! Computes the size of a variable in three ways: the value alone, all values to which it leads,
//! and all values that only it keeps alive.

use std::collections::HashSet;

use crate::analysis::{PerlValueAnalysis, ValueDescription};
use crate::profile::retained_sizes;
use crate::step::ValueStep;
use crate::values::PerlValue;

/// A number of bytes, counted in two ways: by Perl's requests, and by malloc's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// Bytes that Perl requested from malloc.
    pub asked: u64,
    /// Bytes of the blocks that malloc returned.
    pub given: u64,
}

/// The size of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSize {
    /// The value whose size was computed.
    pub value: ValueDescription,
    /// Bytes of the value alone.
    pub own: ByteCounts,
    /// Bytes of the value and of all values to which it leads.
    pub total: ByteCounts,
    /// Number of the values in [`total`](Self::total).
    pub objects: u64,
    /// Bytes of the value and of all values that only it keeps alive.
    pub retained: ByteCounts,
}

impl PerlValueAnalysis {
    /// Computes the size of a value.
    #[must_use]
    pub fn size(&self, number: u32) -> ValueSize {
        let bytes = |value: &PerlValue| ByteCounts {
            asked: value.asked,
            given: value.size,
        };
        let mut seen = HashSet::from([number]);
        let mut queue = vec![number];
        let mut total = ByteCounts::default();
        while let Some(from) = queue.pop() {
            let own = bytes(self.values.get(from));
            total.asked = total.asked.saturating_add(own.asked);
            total.given = total.given.saturating_add(own.given);
            for edge in self
                .values
                .edges(from)
                .iter()
                .filter(|edge| self.is_down(edge.step))
            {
                if self.paths.counts(edge) && seen.insert(edge.to) {
                    queue.push(edge.to);
                }
            }
        }
        let asked = retained_sizes(&self.values, &self.paths, |value| value.asked);
        ValueSize {
            value: self.describe(number),
            own: bytes(self.values.get(number)),
            total,
            objects: seen.len() as u64,
            retained: ByteCounts {
                asked: asked[number as usize],
                given: self.retained[number as usize],
            },
        }
    }

    /// Whether a step leads to a part of a value. Steps to the symbol or sub around the value do
    /// not.
    fn is_down(&self, step: ValueStep) -> bool {
        let is_symbol =
            matches!(step, ValueStep::Named(name) if self.values.text(name) == "symbol");
        !is_symbol && step != ValueStep::Outside
    }
}
