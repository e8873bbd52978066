//! The size of a variable: alone, with all that it leads to, and what only it holds.

use std::collections::HashSet;

use crate::found::{Described, Found};
use crate::profile::retained;
use crate::step::Step;
use crate::values::Value;

/// Bytes by both ways of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// What Perl asked for.
    pub asked: u64,
    /// What malloc gave for it.
    pub given: u64,
}

/// How large a value is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The value.
    pub value: Described,
    /// It alone.
    pub own: Bytes,
    /// It and all that it leads to, and how many values that are.
    pub total: Bytes,
    /// See [`total`](Self::total).
    pub objects: u64,
    /// What only it holds, and itself.
    pub retained: Bytes,
}

impl Found {
    /// How large a value is.
    #[must_use]
    pub fn size(&self, number: u32) -> Size {
        let bytes = |value: &Value| Bytes {
            asked: value.asked,
            given: value.size,
        };
        let mut seen = HashSet::from([number]);
        let mut queue = vec![number];
        let mut total = Bytes::default();
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
        let asked = retained(&self.values, &self.paths, |value| value.asked);
        Size {
            value: self.described(number),
            own: bytes(self.values.get(number)),
            total,
            objects: seen.len() as u64,
            retained: Bytes {
                asked: asked[number as usize],
                given: self.retained[number as usize],
            },
        }
    }

    /// Whether a step leads to what is part of a value, and not to what is around it.
    fn is_down(&self, step: Step) -> bool {
        let is_symbol = matches!(step, Step::Named(name) if self.values.text(name) == "symbol");
        !is_symbol && step != Step::Outside
    }
}
