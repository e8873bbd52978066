//! What nothing leads to: which values of it are first, and whether they are in a ring.

use crate::values::Values;

/// The first values of what is not reached, in the order in which they are to be followed, each
/// with whether something that it leads to leads back to it.
///
/// Of a ring to which nothing else leads, the one that came first is taken. In the order in which a
/// search in depth is done with values, the last one that was not found yet is such a first one (as
/// in Kosaraju's search for strong components).
pub(crate) fn firsts(values: &Values, is_reached: &[bool]) -> Vec<(u32, bool)> {
    let count = values.all().len() as u32;
    let mut is_seen = is_reached.to_vec();
    let mut done = Vec::new();
    for first in 0..count {
        if !is_seen[first as usize] {
            is_seen[first as usize] = true;
            search(values, first, &mut is_seen, &mut done);
        }
    }
    let mut firsts = Vec::new();
    let mut is_known = is_reached.to_vec();
    for &number in done.iter().rev() {
        if !is_known[number as usize] {
            let is_ring = flood(values, number, &mut is_known);
            firsts.push((number, is_ring));
        }
    }
    firsts
}

/// Searches in depth from a value. Adds each to `done` when all to which it leads is there.
fn search(values: &Values, first: u32, is_seen: &mut [bool], done: &mut Vec<u32>) {
    let mut path = vec![(first, 0)];
    while let Some((number, next)) = path.last_mut() {
        let edges = values.edges(*number);
        let found = edges[*next..].iter().enumerate().find_map(|(i, edge)| {
            let to = values.number(edge.to).filter(|_| edge.is_strong)?;
            (!is_seen[to as usize]).then_some((*next + i, to))
        });
        match found {
            Some((at, to)) => {
                *next = at + 1;
                is_seen[to as usize] = true;
                path.push((to, 0));
            }
            None => {
                done.push(*number);
                path.pop();
            }
        }
    }
}

/// Marks all to which a value leads. Returns whether it leads back to itself.
fn flood(values: &Values, first: u32, is_known: &mut [bool]) -> bool {
    let mut is_ring = false;
    let mut queue = vec![first];
    is_known[first as usize] = true;
    while let Some(number) = queue.pop() {
        let strong = values.edges(number).iter().filter(|edge| edge.is_strong);
        for to in strong.filter_map(|edge| values.number(edge.to)) {
            is_ring |= to == first;
            if !is_known[to as usize] {
                is_known[to as usize] = true;
                queue.push(to);
            }
        }
    }
    is_ring
}
