//! Values that refer to a value, and the way by which it is reached.

use crate::analysis::{PerlValueAnalysis, ValueDescription};
use crate::values::PathPhase;

/// More ones that refer to a value are not described.
const MAX_REFERRERS: usize = 10_000;

/// A value that refers to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueReferrer {
    /// The value; `None` for a root, whose name is the step.
    pub from: Option<ValueDescription>,
    /// How.
    pub step: String,
    /// Whether it keeps the other one alive.
    pub is_strong: bool,
}

/// A step of the way to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WayStep {
    /// How it is reached.
    pub step: String,
    /// What it is; without its path.
    pub value: ValueDescription,
    /// How many steps come before.
    pub depth: usize,
}

/// A value, the way to it, and who refers to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueIdentification {
    /// The value.
    pub value: ValueDescription,
    /// The way to it, from a root or from what has leaked. The last one is the value itself.
    pub way: Vec<WayStep>,
    /// How many steps are left out in the middle of the way.
    pub way_left_out: usize,
    /// Whether nothing leads to it from a root.
    pub is_leaked: bool,
    /// Who refers to it.
    pub referrers: Vec<ValueReferrer>,
    /// How many more do.
    pub left_out: usize,
}

impl PerlValueAnalysis {
    /// Says what a value is, how it is reached, and who refers to it. Of the way, so many steps are
    /// told at the most: the first ones and the last ones.
    #[must_use]
    pub fn identify(&self, number: u32, most: usize) -> ValueIdentification {
        let mut all = Vec::new();
        let mut at = number;
        loop {
            let before = self.paths.before(at);
            all.push((at, before.map(|(_, step)| step)));
            match before {
                Some((before, _)) => at = before,
                None => break,
            }
        }
        all.reverse();
        let first = (most / 2).min(all.len());
        let last = most.saturating_sub(first).min(all.len() - first);
        let is_told = |depth: usize| depth < first || depth + last >= all.len();
        let told = all.iter().enumerate().filter(|(depth, _)| is_told(*depth));
        let way = told.map(|(depth, &(number, step))| WayStep {
            step: match step {
                Some(step) => self.step_text(step),
                None => self.root_name(number).unwrap_or_default(),
            },
            value: self.describe_without_path(number),
            depth,
        });
        let way: Vec<WayStep> = way.collect();
        let way_left_out = all.len() - way.len();
        let mut referrers = Vec::new();
        let mut left_out = 0;
        let mut add =
            |from: Option<u32>, step: String, is_strong| match referrers.len() < MAX_REFERRERS {
                true => referrers.push(ValueReferrer {
                    from: from.map(|from| self.describe(from)),
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
            add(None, name, root.phase != PathPhase::Mentions);
        }
        for from in self.values.numbers() {
            for edge in self
                .values
                .edges(from)
                .iter()
                .filter(|edge| edge.to == number)
            {
                add(Some(from), self.step_text(edge.step), edge.is_strong);
            }
        }
        ValueIdentification {
            value: self.describe(number),
            way,
            way_left_out,
            is_leaked: self.is_leaked(number),
            referrers,
            left_out,
        }
    }

    fn step_text(&self, step: crate::step::ValueStep) -> String {
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
