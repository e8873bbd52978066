//! The size of a variable: alone, with all that it leads to, and what only it holds.

use std::collections::HashSet;

use crate::analysis::{PerlValueAnalysis, ValueDescription};
use crate::profile::retained_sizes;
use crate::step::ValueStep;
use crate::values::PerlValue;

/// Bytes by both ways of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// What Perl asked for.
    pub asked: u64,
    /// What malloc gave for it.
    pub given: u64,
}

/// How large a value is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSize {
    /// The value.
    pub value: ValueDescription,
    /// It alone.
    pub own: ByteCounts,
    /// It and all that it leads to, and how many values that are.
    pub total: ByteCounts,
    /// See [`total`](Self::total).
    pub objects: u64,
    /// What only it holds, and itself.
    pub retained: ByteCounts,
}

impl PerlValueAnalysis {
    /// How large a value is.
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

    /// Whether a step leads to what is part of a value, and not to what is around it.
    fn is_down(&self, step: ValueStep) -> bool {
        let is_symbol =
            matches!(step, ValueStep::Named(name) if self.values.text(name) == "symbol");
        !is_symbol && step != ValueStep::Outside
    }
}
