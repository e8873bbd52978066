//! Finds leaked rings of references, and for each ring the reference that closes it.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::analysis::PerlValueAnalysis;
use crate::leak_roots::{first_of, leaked_components};
use crate::step::ValueStep;
use crate::values::ValueEdge;

/// Maximum number of steps of a ring that are shown, counted from its first step.
const MAX_RING_STEPS: usize = 12;

/// A group of leaked rings with the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakedCycle {
    /// Number of rings.
    pub count: u64,
    /// Number of values in all rings of the group.
    pub objects: u64,
    /// Bytes that all rings of the group retain.
    pub retained: u64,
    /// The ring as text, from a value back to the same value: `Node {parent} Node`.
    pub ring: String,
    /// The step that leads back to the ring's first value: the variable, key or element that should
    /// be a weak reference.
    pub closed_by: String,
    /// Lowest address of the rings' first values.
    pub example: u64,
}

impl PerlValueAnalysis {
    /// Finds the leaked rings. Each entry is a group of rings that look the same. Groups that
    /// retain the most come first.
    #[must_use]
    pub fn cycles(&self) -> Vec<LeakedCycle> {
        let is_leaked: Vec<bool> = self
            .values
            .numbers()
            .map(|one| self.is_leaked(one))
            .collect();
        let (of, count) =
            leaked_components(&self.values, &is_leaked, |edge| self.paths.counts(edge));
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); count as usize];
        for (number, &of) in (0..).zip(&of) {
            if let Some(members) = members.get_mut(of as usize) {
                members.push(number);
            }
        }
        let mut cycles: HashMap<(String, String), LeakedCycle, RandomState> = HashMap::default();
        for members in members {
            let leads_to_itself = |&number: &u32| {
                let mut edges = self.values.edges(number).iter();
                edges.any(|edge| edge.to == number && self.paths.counts(edge))
            };
            // Blocks of C code may be in a circle, too.
            let has_values = members
                .iter()
                .any(|&one| self.values.get(one).kind.is_value());
            if !has_values || members.len() < 2 && !members.iter().any(leads_to_itself) {
                continue;
            }
            let Some((ring, closed_by, first)) = self.ring(&members, &of) else {
                continue;
            };
            let retained = members.iter().map(|&one| self.retained[one as usize]).max();
            let key = (ring, closed_by);
            let cycle = cycles
                .entry(key)
                .or_insert_with_key(|(ring, closed_by)| LeakedCycle {
                    count: 0,
                    objects: 0,
                    retained: 0,
                    ring: ring.clone(),
                    closed_by: closed_by.clone(),
                    example: self.values.get(first).address,
                });
            cycle.count += 1;
            cycle.objects += members.len() as u64;
            cycle.retained += retained.unwrap_or(0);
            cycle.example = cycle.example.min(self.values.get(first).address);
        }
        let mut cycles: Vec<LeakedCycle> = cycles.into_values().collect();
        cycles.sort_by(|one, other| (other.retained, &one.ring).cmp(&(one.retained, &other.ring)));
        cycles
    }

    /// Finds a shortest ring through a member of a component. Returns the ring as text, the step
    /// that closes it, and the member.
    fn ring(&self, members: &[u32], of: &[u32]) -> Option<(String, String, u32)> {
        let first = first_of(&self.values, members)?;
        let component = of[first as usize];
        let mut before: HashMap<u32, (u32, ValueEdge), RandomState> = HashMap::default();
        let mut queue = VecDeque::from([first]);
        'search: while let Some(from) = queue.pop_front() {
            for edge in self
                .values
                .edges(from)
                .iter()
                .filter(|edge| self.paths.counts(edge))
            {
                if of[edge.to as usize] != component || before.contains_key(&edge.to) {
                    continue;
                }
                before.insert(edge.to, (from, *edge));
                if edge.to == first {
                    break 'search;
                }
                queue.push_back(edge.to);
            }
        }
        let mut way = Vec::new();
        let mut at = first;
        loop {
            let (from, edge) = before.get(&at)?;
            way.push(*edge);
            at = *from;
            if at == first {
                break;
            }
        }
        way.reverse();
        let closed_by = way.iter().rev().map(|edge| self.step_name(edge.step));
        let closed_by = closed_by
            .flatten()
            .next()
            .unwrap_or_else(|| "->".to_string());
        // A single ring has as many edges as values. More edges mean that there are other rings in
        // it.
        let inside = |&from: &u32| {
            let edges = self.values.edges(from).iter();
            let inside =
                edges.filter(|edge| of[edge.to as usize] == component && self.paths.counts(edge));
            inside.count()
        };
        let ways: usize = members.iter().map(inside).sum();
        let closed_by = match ways > members.len() {
            true => format!("{closed_by}, and others"),
            false => closed_by,
        };
        let mut ring = self.value_label(first);
        for edge in way.iter().take(MAX_RING_STEPS) {
            if let Some(step) = self.step_name(edge.step) {
                ring += &format!(" {step}");
            }
            // A reference says no more than the value to which it refers.
            if self.values.get(edge.to).kind.name() != "REF" {
                ring += &format!(" {}", self.value_label(edge.to));
            }
        }
        if way.len() > MAX_RING_STEPS {
            ring += &format!(" … ({} more)", way.len() - MAX_RING_STEPS);
        }
        Some((ring, closed_by, first))
    }

    fn value_label(&self, number: u32) -> String {
        let value = self.values.get(number);
        let text = |id| self.values.text(id);
        match (text(self.values.class(value)), text(value.name)) {
            ("", "") => value.kind.name().to_string(),
            ("", name) => format!("{} {name}", value.kind.name()),
            (class, _) => class.to_string(),
        }
    }

    /// Returns the name of a step in reports; `None` for the step from a reference to its referent.
    pub(crate) fn step_name(&self, step: ValueStep) -> Option<String> {
        let text = |id| self.values.text(id);
        Some(match step {
            ValueStep::Referent => return None,
            ValueStep::Slot(sigil) => char::from(sigil).to_string(),
            ValueStep::Element(number) => format!("[{number}]"),
            ValueStep::Field(number) => format!("field {number}"),
            ValueStep::Entry => "{*}".to_string(),
            ValueStep::Key(key) => format!("{{{}}}", text(key)),
            ValueStep::Pad(depth) => format!("<pad depth {depth}>"),
            ValueStep::Variable(name) => format!("my {}", text(name)),
            ValueStep::Temporary => "<temporary>".to_string(),
            ValueStep::Constant => "<constant>".to_string(),
            ValueStep::Outside => "<outside>".to_string(),
            ValueStep::Magic(letter) => format!("<magic {}>", [letter].escape_ascii()),
            ValueStep::Target => "<target>".to_string(),
            ValueStep::Named(name) => format!("<{}>", text(name)),
            ValueStep::Ops => "<ops>".to_string(),
            ValueStep::Memory | ValueStep::Mention => "(C memory)".to_string(),
            ValueStep::Class => "<class>".to_string(),
        })
    }
}
