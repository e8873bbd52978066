//! Finds the referrers of a value, and the path by which the value is reached.

use crate::analysis::{PerlValueAnalysis, ValueDescription};
use crate::values::PathPhase;

/// Maximum number of referrers that are described.
const MAX_REFERRERS: usize = 10_000;

/// A value or a root that refers to another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueReferrer {
    /// The referring value; `None` for a root, whose name is in `step`.
    pub from: Option<ValueDescription>,
    /// The step from the referrer to the value, or the name of a root.
    pub step: String,
    /// Whether the referrer keeps the value alive.
    pub is_strong: bool,
}

/// A step of the path to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WayStep {
    /// The name of the step; for the first step, the name of the root.
    pub step: String,
    /// The value that the step reaches, without its path.
    pub value: ValueDescription,
    /// Number of earlier steps in the path.
    pub depth: usize,
}

/// A value, the path to it, and its referrers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueIdentification {
    /// The identified value.
    pub value: ValueDescription,
    /// The path to the value, from a root or from the first value of a leak. The last step reaches
    /// the value itself.
    pub way: Vec<WayStep>,
    /// Number of steps in the middle of the path that are left out.
    pub way_left_out: usize,
    /// Whether no root leads to the value.
    pub is_leaked: bool,
    /// The referrers of the value.
    pub referrers: Vec<ValueReferrer>,
    /// Number of referrers that are left out.
    pub left_out: usize,
}

impl PerlValueAnalysis {
    /// Describes a value, the path to it, and its referrers. At most `most` steps of the path are
    /// returned: the first and the last ones.
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
        let is_reported = |depth: usize| depth < first || depth + last >= all.len();
        let reported = all
            .iter()
            .enumerate()
            .filter(|(depth, _)| is_reported(*depth));
        let way = reported.map(|(depth, &(number, step))| WayStep {
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

    /// Returns the name of the root that leads to a value; `None` if no root leads directly to it.
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
