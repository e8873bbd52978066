//! Finds the first value of each leak, and whether it is in a ring.

use heapprof_objects::components;

use crate::kind::PerlValueKind;
use crate::text::TextId;
use crate::values::{ValueEdge, ValueGraph};

/// Finds the first value of each leak, and whether it is in a ring. To find leaks, unreached values
/// are grouped into strong components. A component to which no other component leads is the
/// beginning of a leak, and one of its values is the first value. `keeps` returns whether an edge
/// keeps its target alive.
pub(crate) fn firsts(
    values: &ValueGraph,
    is_reached: &[bool],
    keeps: impl Fn(&ValueEdge) -> bool,
) -> Vec<(u32, bool)> {
    let is_leaked: Vec<bool> = is_reached.iter().map(|reached| !reached).collect();
    let (of, count) = leaked_components(values, &is_leaked, &keeps);
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); count as usize];
    let mut is_held = vec![false; count as usize];
    let mut is_ring = vec![false; count as usize];
    for (number, &component) in (0..).zip(&of) {
        let Some(own) = members.get_mut(component as usize) else {
            continue;
        };
        own.push(number);
        for edge in values.edges(number).iter().filter(|edge| keeps(edge)) {
            let to = of[edge.to as usize];
            match to == component {
                true => is_ring[to as usize] = true,
                false if is_leaked[edge.to as usize] => is_held[to as usize] = true,
                false => {}
            }
        }
    }
    let first = members.iter().zip(is_held).zip(is_ring);
    let first = first.filter(|((_, is_held), _)| !is_held);
    let first = first.filter_map(|((members, _), ring)| Some((first_of(values, members)?, ring)));
    let mut first: Vec<(u32, bool)> = first.collect();
    first.sort_unstable();
    first
}

/// Returns the strong component of each leaked value, and the number of components.
pub(crate) fn leaked_components(
    values: &ValueGraph,
    is_leaked: &[bool],
    keeps: impl Fn(&ValueEdge) -> bool,
) -> (Vec<u32>, u32) {
    let next = |number: u32, place: &mut usize| {
        let mut edges = values.edges(number)[*place..].iter();
        edges.find_map(|edge| {
            *place += 1;
            keeps(edge).then_some(edge.to)
        })
    };
    components(is_leaked, |_| 0, next)
}

/// Returns the most telling value among `members`: an object, else a sub, a hash or an array, else
/// any value.
pub(crate) fn first_of(values: &ValueGraph, members: &[u32]) -> Option<u32> {
    let rank = |number: u32| {
        let value = values.get(number);
        let class = values.class(value);
        let kind = [
            PerlValueKind::Code,
            PerlValueKind::Hash,
            PerlValueKind::Array,
            PerlValueKind::Object,
        ];
        let kind = kind.iter().position(|kind| *kind == value.kind);
        (
            class == TextId::EMPTY,
            values.text(class),
            kind.unwrap_or(4),
            value.address,
        )
    };
    members.iter().copied().min_by_key(|&number| rank(number))
}
