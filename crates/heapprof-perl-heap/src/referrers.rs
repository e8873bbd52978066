//! Who refers to a value, and the way by which it is reached.

use crate::found::{Described, Found};
use crate::values::Phase;

/// More ones that refer to a value are not described.
const MOST: usize = 10_000;

/// A value that refers to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrer {
    /// The value; `None` for a root, whose name is the step.
    pub from: Option<Described>,
    /// How.
    pub step: String,
    /// Whether it keeps the other one alive.
    pub is_strong: bool,
}

/// A value, the way to it, and who refers to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identified {
    /// The value.
    pub value: Described,
    /// The way to it, from a root or from what has leaked: how each is reached, and what it is. The
    /// last one is the value itself.
    pub way: Vec<(String, Described)>,
    /// Whether nothing leads to it from a root.
    pub is_leaked: bool,
    /// Who refers to it.
    pub referrers: Vec<Referrer>,
    /// How many more do.
    pub left_out: usize,
}

impl Found {
    /// Says what a value is, how it is reached, and who refers to it.
    #[must_use]
    pub fn identify(&self, number: u32) -> Identified {
        let mut way = Vec::new();
        let mut at = number;
        while let Some((before, step)) = self.paths.before(at) {
            way.push((self.shown_step(step), self.described(at)));
            at = before;
        }
        let first = self.described(at);
        let root = self.root_name(at).unwrap_or_default();
        way.push((root, first));
        way.reverse();
        let mut referrers = Vec::new();
        let mut left_out = 0;
        let mut add = |from: Option<u32>, step: String, is_strong| match referrers.len() < MOST {
            true => referrers.push(Referrer {
                from: from.map(|from| self.described(from)),
                step,
                is_strong,
            }),
            false => left_out += 1,
        };
        for root in self
            .values
            .roots()
            .iter()
            .filter(|root| root.number == number)
        {
            let name = self.values.text(root.name).to_string();
            add(None, name, root.phase != Phase::Mentions);
        }
        for from in self.values.numbers() {
            for edge in self
                .values
                .edges(from)
                .iter()
                .filter(|edge| edge.to == number)
            {
                add(Some(from), self.shown_step(edge.step), edge.is_strong);
            }
        }
        Identified {
            value: self.described(number),
            way,
            is_leaked: self.is_leaked(number),
            referrers,
            left_out,
        }
    }

    fn shown_step(&self, step: crate::step::Step) -> String {
        self.step_name(step).unwrap_or_else(|| "->".to_string())
    }

    /// The name of the root that a value is; `None` if it is none.
    fn root_name(&self, number: u32) -> Option<String> {
        let mut roots = self.values.roots().iter();
        let root = roots.find(|root| root.number == number)?;
        let text = |id| self.values.text(id);
        Some(match text(root.outer) {
            "" => text(root.name).to_string(),
            outer => format!("{outer};{}", text(root.name)),
        })
    }
}
