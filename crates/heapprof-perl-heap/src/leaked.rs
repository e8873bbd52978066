//! What nothing leads to: which values of it are first, and whether they are in a ring.

use heapprof_graph::done_with;

use crate::step::Step;
use crate::values::Values;

/// The first values of what is not reached, in the order in which they are to be followed, each
/// with whether something that it leads to leads back to it. Of a ring to which nothing else leads,
/// the one that came first is taken, or what it refers to if it is a reference.
pub(crate) fn firsts(values: &Values, is_reached: &[bool]) -> Vec<(u32, bool)> {
    let next = |number: u32, place: &mut usize| {
        let mut edges = values.edges(number)[*place..].iter();
        edges.find_map(|edge| {
            *place += 1;
            edge.is_strong.then_some(edge.to)
        })
    };
    let done = done_with(&mut is_reached.to_vec(), |_| 0, next);
    let mut firsts = Vec::new();
    let mut is_known = is_reached.to_vec();
    for &number in done.iter().rev() {
        if !is_known[number as usize] {
            let is_ring = flood(values, number, &mut is_known);
            // A reference says less than what it refers to.
            let referent = values.edges(number).iter();
            let referent = referent.filter(|edge| is_ring && edge.step == Step::Referent);
            let first = referent.map(|edge| edge.to).next();
            firsts.push((first.unwrap_or(number), is_ring));
        }
    }
    firsts
}

/// Marks all to which a value leads. Returns whether it leads back to itself.
fn flood(values: &Values, first: u32, is_known: &mut [bool]) -> bool {
    let mut is_ring = false;
    let mut queue = vec![first];
    is_known[first as usize] = true;
    while let Some(number) = queue.pop() {
        let strong = values.edges(number).iter().filter(|edge| edge.is_strong);
        for to in strong.map(|edge| edge.to) {
            is_ring |= to == first;
            if !is_known[to as usize] {
                is_known[to as usize] = true;
                queue.push(to);
            }
        }
    }
    is_ring
}
