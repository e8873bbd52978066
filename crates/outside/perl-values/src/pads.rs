//! Sums up the memory that subs keep between calls: the values of their variables, by depth of
//! recursion.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::analysis::PerlValueAnalysis;
use crate::kind::PerlValueKind;
use crate::step::ValueStep;

/// The variables of a sub at one depth of recursion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PadSummary {
    /// The path of the sub.
    pub sub: String,
    /// The depth of recursion, counted from 1.
    pub depth: u32,
    /// Number of subs with this path: one for each closure.
    pub objects: u64,
    /// Bytes that the variables retain.
    pub retained: u64,
    /// The variable that retains the most bytes.
    pub largest: String,
    /// Bytes that [`largest`](Self::largest) retains.
    pub largest_retained: u64,
}

impl PerlValueAnalysis {
    /// Returns the variables of all subs by depth. The entry that retains the most comes first.
    #[must_use]
    pub fn pads(&self) -> Vec<PadSummary> {
        let mut pads: HashMap<(u32, u32), PadSummary, RandomState> = HashMap::default();
        let mut roots = self.values.roots().iter();
        let program = roots.find(|root| self.values.text(root.name) == "(main program)");
        let program = program.map(|root| root.number);
        // The variables of the program's file belong to no sub.
        for sub in self.values.numbers().filter(|&sub| Some(sub) != program) {
            for edge in self.values.edges(sub) {
                let ValueStep::Pad(depth) = edge.step else {
                    continue;
                };
                let place = self.paths.place(sub);
                let pad = pads.entry((place, depth)).or_insert_with(|| PadSummary {
                    sub: self.paths.path_text(&self.values, sub),
                    depth,
                    objects: 0,
                    retained: 0,
                    largest: String::new(),
                    largest_retained: 0,
                });
                pad.objects += 1;
                pad.retained += self.retained[edge.to as usize];
                // A captured variable belongs to the outer sub. A symbol or a sub that this sub
                // uses does not belong to it either.
                let variables = self.values.edges(edge.to).iter();
                let variables = variables.filter(|one| {
                    let before = self.paths.before(one.to);
                    let is_own = before.is_some_and(|(before, _)| before == edge.to);
                    let kind = self.values.get(one.to).kind;
                    is_own && !matches!(kind, PerlValueKind::Glob | PerlValueKind::Code)
                });
                for variable in variables {
                    let retained = self.retained[variable.to as usize];
                    if retained > pad.largest_retained {
                        pad.largest_retained = retained;
                        pad.largest = self.step_name(variable.step).unwrap_or_default();
                    }
                }
            }
        }
        let mut pads: Vec<PadSummary> = pads.into_values().collect();
        pads.sort_by(|one, other| {
            let key =
                |pad: &PadSummary| (std::cmp::Reverse(pad.retained), pad.sub.clone(), pad.depth);
            key(one).cmp(&key(other))
        });
        pads
    }
}
